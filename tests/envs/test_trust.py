"""A checkpoint's configuration names an environment; no module of others is imported because a checkpoint says so."""

import json
import shutil
import sys

import gymnasium
import pytest
import yaml

from td3robot.config import load_config
from td3robot.envs.trust import foreign_module
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import newest

MODULE = """
from pathlib import Path
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
Path(__file__).with_name("ran").write_text("ran")
gymnasium.register("{name}/Swing-v0", entry_point=PendulumEnv, max_episode_steps=200)
"""


@pytest.mark.parametrize(
    ("environment", "module"),
    [
        ("Pendulum-v1", None), ("Pendulum", None), ("gymnasium:Pendulum-v1", None), ("td3robot/UR5eReach-v0", None),
        ("td3robot.envs:Pendulum-v1", None), ("evil:Pendulum-v1", "evil"), ("os:Evil-v0", "os"), ("a:b:Evil-v0", "a:b"),
        ("gymnasium_evil:Evil-v0", "gymnasium_evil"), ("Nothing-v0", None), ("", None),
    ],
)  # fmt: skip
def test_only_modules_of_others_are_foreign(environment, module):
    assert foreign_module(environment) == module


def test_an_environment_of_an_installed_plugin_is_foreign_and_is_not_imported():
    gymnasium.register("plugin/It-v0", entry_point="no_such_plugin.envs:It")
    try:
        assert foreign_module("plugin/It-v0") == "no_such_plugin.envs"
    finally:
        del gymnasium.registry["plugin/It-v0"]


@pytest.fixture
def foreign(tmp_path, monkeypatch, small):
    """Give a finished run on an environment of a module, which forgets that it ran."""
    name = "a_foreign_swing"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    config = tmp_path / "swing.yaml"
    values = {"name": "swing", "environment": {"kind": "gymnasium", "id": f"{name}:{name}/Swing-v0"}}
    config.write_text(yaml.safe_dump(values))

    class Quiet:
        progress = evaluated = message = staticmethod(lambda *_: None)

    trainer = make_trainer(load_config(config, [*small, "training.overlap=false"]), tmp_path / "run", Quiet())
    trainer.train()
    trainer.close()
    sys.modules.pop(name)
    gymnasium.registry.pop(f"{name}/Swing-v0")
    (tmp_path / "modules" / "ran").unlink()
    yield tmp_path / "run", tmp_path / "modules" / "ran"
    sys.modules.pop(name, None)
    gymnasium.registry.pop(f"{name}/Swing-v0", None)


@pytest.mark.parametrize("arguments", [["eval", "RUN", "--episodes", "1"], ["train", "--resume", "RUN", "--more", "5"]])
def test_a_module_is_imported_only_for_those_who_trust_it(td3robot, foreign, arguments):
    run, ran = foreign
    arguments = [run if argument == "RUN" else argument for argument in arguments]
    status, out, err = td3robot(*arguments)
    assert (status, out) == (2, "")
    assert "whose code is the module 'a_foreign_swing'; nothing was imported" in err
    assert "--trust" in err
    assert not ran.exists()
    assert "a_foreign_swing" not in sys.modules
    status, _, err = td3robot(*arguments, "--trust")
    assert status == 0, err
    assert ran.exists()


def test_commands_that_are_printed_for_a_foreign_environment_run(td3robot, foreign, tmp_path):
    run, _ = foreign
    said = []
    for arguments in (["inspect", run], ["train", "--resume", run, "--more", "5", "--trust"]):
        said += "".join(td3robot(*arguments)[1:]).splitlines()
    found = [line for line in said if "td3robot eval" in line or "td3robot train --resume" in line]
    assert len(found) == 3 and all(line.endswith(" --trust") for line in found), found
    assert f"{run} --more N --trust" in read_page(run)


def read_page(run):
    return (run / "report.html").read_text()


def test_looking_at_a_foreign_checkpoint_imports_nothing(td3robot, foreign):
    run, ran = foreign
    for arguments in (["inspect", run], ["inspect", run, "--all"], ["plot", run], ["report", run]):
        assert td3robot(*arguments)[0] == 0
    assert not ran.exists()


@pytest.mark.parametrize("command", [["eval"], ["train", "--more", "5", "--resume"]])
def test_a_configuration_that_names_another_environment_than_the_contract_is_refused_first(
    td3robot, made, tmp_path, sign, command
):
    path = tmp_path / "run" / newest(made).path.name
    shutil.copytree(newest(made).path, path)
    values = yaml.safe_load((path / "config.yaml").read_text())
    values["environment"]["id"] = "a_module_that_nobody_has:Evil-v0"
    (path / "config.yaml").write_text(yaml.safe_dump(values))
    sign(path, "config.yaml")
    status, _, err = td3robot(*command, path, "--trust")
    assert status == 2
    assert "a_module_that_nobody_has:Evil-v0" in err
    assert "its contract" in err
    assert json.loads((path / "contract.json").read_text())["environment"]["id"] == "Pendulum-v1"
