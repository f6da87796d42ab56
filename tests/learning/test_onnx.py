"""A policy as one ONNX file acts as the policy does."""

import numpy as np
import pytest

from td3robot import load_policy
from td3robot.errors import MissingExtraError
from td3robot.learning.onnx import TOLERANCE, to_onnx


@pytest.mark.parametrize("normalize", ["false", "true"])
def test_the_file_acts_as_the_policy(pendulum_trainer, tmp_path, normalize):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    trainer = pendulum_trainer([f"agent.normalize_observations={normalize}", "agent.layer_norm=true"])
    trainer.agent.normalizer.update(np.random.default_rng(1).normal(3.0, 2.0, (50, 3)))
    trainer.save()
    out = tmp_path / "new" / "policy.onnx"

    assert to_onnx(trainer.run_directory, out) <= TOLERANCE
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    policy = load_policy(trainer.run_directory)
    for rows in (1, 7):
        observations = np.random.default_rng(2).normal(0.0, 100.0, (rows, 3)).astype(np.float32)
        (actions,) = session.run(["action"], {"observation": observations})
        np.testing.assert_allclose(actions, policy.act(observations), rtol=0, atol=1e-5)
    assert [path.name for path in out.parent.iterdir()] == ["policy.onnx"]


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(untrained, tmp_path, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'td3robot\[onnx\]'"):
        to_onnx(untrained, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()
