"""A policy as one ONNX file acts as the policy does."""

import json
from pathlib import Path

import numpy as np
import pytest

from td3robot import load_policy
from td3robot.errors import CheckpointError, ConfigError, MissingExtraError
from td3robot.policy.onnx import TOLERANCE, to_onnx


@pytest.mark.parametrize("opset", [13, 16, 17, 20])
@pytest.mark.parametrize("normalize", ["false", "true"])
def test_the_file_acts_as_the_policy(pendulum_trainer, tmp_path, normalize, opset):
    onnxruntime = pytest.importorskip("onnxruntime")
    trainer = pendulum_trainer([f"agent.normalize_observations={normalize}", "agent.layer_norm=true"])
    trainer.agent.normalizer.update(np.random.default_rng(1).normal(3.0, 2.0, (50, 3)))
    trainer.save()
    out = tmp_path / "new" / "policy.onnx"

    assert to_onnx(trainer.run_directory, out, opset) <= TOLERANCE
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    policy = load_policy(trainer.run_directory)
    for rows in (1, 7):
        observations = np.random.default_rng(2).normal(0.0, 100.0, (rows, 3)).astype(np.float32)
        (actions,) = session.run(["action"], {"observation": observations})
        np.testing.assert_allclose(actions, policy.act(observations), rtol=0, atol=1e-5)
    assert [path.name for path in out.parent.iterdir()] == ["policy.onnx"]


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(untrained, tmp_path, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'td3robot\[onnx\]'"):
        to_onnx(untrained, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


def test_an_older_runtime_can_read_it_and_it_says_what_its_numbers_mean(tmp_path):
    onnx, out = pytest.importorskip("onnx"), tmp_path / "policy.onnx"
    pytest.importorskip("onnxruntime")
    to_onnx(Path("ur5e_reach"), out)
    model = onnx.load(out)
    assert (model.ir_version, [each.version for each in model.opset_import]) == (8, [17])
    found = {each.key: json.loads(each.value) for each in model.metadata_props}
    assert found == json.loads(json.dumps(dict(load_policy("ur5e_reach").contract.terms)))
    assert found["observation"][0].keys() >= {"name", "components", "unit"}
    assert found["robot"]["control_rate_hz"] == 20.0
    assert "20 times a second" in model.graph.doc_string


@pytest.mark.parametrize("opset", [0, 12, 10_000])
def test_operators_of_no_known_version_are_refused(untrained, tmp_path, opset):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match=f"--opset {opset} is outside 13 to"):
        to_onnx(untrained, tmp_path / "policy.onnx", opset)
    assert not (tmp_path / "policy.onnx").exists()


def test_a_file_that_the_runtime_here_cannot_read_is_not_left_behind(untrained, tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")

    def refuse(*_, **__):
        raise RuntimeError("Unsupported model IR version")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    with pytest.raises(CheckpointError, match=r"does not run --opset 20 \(Unsupported model IR version\)"):
        to_onnx(untrained, tmp_path / "policy.onnx", 20)
    assert not (tmp_path / "policy.onnx").exists()
