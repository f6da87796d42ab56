"""The command line: figures on standard output, words for people on standard error, status 2 for mistakes."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import typer
import yaml

from td3robot import cli
from td3robot.cli import terminal
from td3robot.cli.training import undisturbed_note
from td3robot.config import load_config
from td3robot.learning.run_directory import RunLock
from td3robot.policy.checkpoint import find, newest

ROOT = Path(__file__).parents[1]
PENDULUM = str(ROOT / "configs" / "gym_pendulum.yaml")
REACH = str(ROOT / "configs" / "ur5e_reach_quick.yaml")
GRASP = str(ROOT / "configs" / "ur5e_grasp_quick.yaml")
EVALUATION_KEYS = [
    "success_rate", "success_ci95", "episodes", "mean_return", "mean_steps", "mean_final_distance_m",
    "max_tcp_speed_m_s", "max_joint_speed_rad_s", "guard_interventions", "mean_return_ci95", "failures", "handling",
]  # fmt: skip


def only_json(text: str) -> dict:
    """Read the one JSON object that is all of a text."""
    assert text.count("\n") == 1
    assert text.endswith("\n")
    values = json.loads(text)
    assert isinstance(values, dict)
    return values


def assert_one_line(result: tuple[int, str, str], *words: str) -> None:
    """Hold a result to status 2, an empty standard output and one line of error with some words in it."""
    status, out, err = result
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1, err
    assert err.startswith("td3robot: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_an_undisturbed_training_says_what_to_train_before_an_arm():
    said = {name: undisturbed_note(load_config(Path(name))) for name in
            ("ur5e_reach_quick", "ur5e_reach_joint", "ur5e_reach", "gym_pendulum")}  # fmt: skip
    about = "note: this policy was trained undisturbed, and an arm has delays and noise: before an arm, train"
    assert said == {
        "ur5e_reach_quick": f"{about} ur5e_reach",
        "ur5e_reach_joint": f"{about} it with --set environment.disturbance=real",
        "ur5e_reach": None,
        "gym_pendulum": None,
    }


def test_train_makes_a_run_and_says_how_to_evaluate_it(td3robot, tmp_path, set_small):
    status, out, err = td3robot("train", PENDULUM, "--out", tmp_path / "run", "--seed", 7, *set_small)
    assert (status, out) == (0, "")
    assert "gym_pendulum: seed 7, step 0 of 60" in err
    assert f"evaluate with: td3robot eval {tmp_path / 'run'}" in err
    assert newest(tmp_path / "run").config().seed == 7


def test_train_json_is_one_object(td3robot, tmp_path, set_small):
    status, out, _ = td3robot("train", PENDULUM, "--out", tmp_path / "run", "--json", *set_small)
    figures = only_json(out)
    assert status == 0
    assert figures.keys() == {"run", "step", "seconds", "steps_per_second", "best_step", "best_evaluation"}
    assert (figures["run"], figures["step"], figures["best_step"]) == (str(tmp_path / "run"), 60, 60)
    assert list(figures["best_evaluation"]) == EVALUATION_KEYS


def test_eval_json_has_exactly_the_documented_keys(td3robot, made):
    status, out, err = td3robot("eval", made, "--episodes", 2, "--json")
    figures = only_json(out)
    assert status == 0, err
    assert list(figures) == EVALUATION_KEYS
    assert figures["episodes"] == 2
    assert figures["mean_steps"] == 200
    assert figures["mean_return"] < 0
    assert figures["success_rate"] is None


def test_eval_of_a_seed_repeats_and_of_another_does_not(td3robot, made):
    first, same, other = (
        only_json(td3robot("eval", made, "--episodes", 1, "--seed", seed, "--json")[1]) for seed in (5, 5, 6)
    )
    assert first == same
    assert first != other


def test_eval_without_json_says_the_figures_in_words(td3robot, made):
    status, out, _ = td3robot("eval", made, "--episodes", 1)
    assert status == 0
    assert "Pendulum-v1, episodes of seed 12345" in out
    assert "mean return -" in out
    assert "in 200 steps" in out


def test_eval_refuses_another_environment_and_names_what_an_override_changes(td3robot, made):
    assert_one_line(
        td3robot("eval", made, "--episodes", 1, "--set", "environment.id=MountainCarContinuous-v0"),
        "observation field 0 differs",
    )
    status, _, err = td3robot("eval", made, "--episodes", 1, "--set", "environment.kwargs.g=9.81")
    assert status == 0
    assert "note: environment.kwargs.g is 9.81 here and was absent in training" in err


@pytest.mark.parametrize("config", ["ur5e_reach_quick", "ur5e_grasp_quick"])
def test_eval_plays_the_hand_written_policy_of_a_task(td3robot, config):
    status, out, _ = td3robot("eval", "scripted", "--config", config, "--episodes", 2)
    assert status == 0 and "scripted in simulation" in out and "2 of 2" in out


def test_eval_refuses_a_hand_written_policy_that_there_is_none_of(td3robot, made):
    for arguments, sentence in (
        (("scripted",), "needs a task: name a configuration, such as --config ur5e_grasp"),
        (("scripted", "--config", "gym_pendulum"), "is for robots"),
        (("scripted", "--config", "ur5e_reach_joint"), "the actions here are 'joint_delta'"),
        ((made, "--config", "ur5e_grasp"), "--config is for the policy 'scripted'"),
    ):
        assert_one_line(td3robot("eval", *arguments, "--episodes", 1), sentence)


def test_eval_plays_slower_as_a_deployment_does(td3robot, made):
    policy = ROOT / "checkpoints" / "ur5e_reach"
    slow = only_json(td3robot("eval", policy, "--episodes", 1, "--speed", 0.5, "--json")[1])
    assert (slow["success_rate"], slow["mean_steps"]) == (1.0, 200)
    assert slow["max_tcp_speed_m_s"] < 0.14
    assert_one_line(td3robot("eval", policy, "--episodes", 1, "--speed", 2), "--speed 2 is outside [0.02, 1]")
    refused = td3robot("eval", made, "--episodes", 1, "--speed", 0.5)
    assert_one_line(refused, "--speed 0.5 is for robots, and this policy was trained on")


def test_inspect_json_tells_what_a_checkpoint_is(td3robot, made):
    for path, resumable in ((made, False), (newest(made).path, True)):
        status, out, _ = td3robot("inspect", path, "--json")
        figures = only_json(out)
        assert status == 0
        assert (figures["name"], figures["seed"], figures["verified"]) == ("gym_pendulum", 0, True)
        assert figures["resumable"] is resumable
        assert figures["step"] == 60
        assert figures["bytes"] > 0
        assert set(figures["evaluation"]) == set(EVALUATION_KEYS)


def test_inspect_says_in_a_dozen_lines_what_a_person_wants(td3robot, made):
    status, out, err = td3robot("inspect", made)
    assert (status, err) == (0, "")
    assert "every file verified" in out
    assert "Pendulum-v1" in out
    assert "60 of 60 steps, seed 0, from scratch" in out
    assert f"yes: td3robot train --resume {made} --more N" in out  # it is at its end
    assert f"td3robot eval {made}" in out
    assert out.count("\n") <= 12


def test_a_stopped_run_is_resumed_to_its_end_as_configured(td3robot, tmp_path, set_small, sign):
    run = tmp_path / "run"
    assert td3robot("train", PENDULUM, "--out", run, *set_small, "--steps", 50)[0] == 0
    (last,) = run.glob("last-*50")
    (last / "config.yaml").write_text((last / "config.yaml").read_text().replace("steps: 50", "steps: 60"))
    sign(last, "config.yaml")
    assert "40 of 60 steps; the run was saved at step 50" in td3robot("inspect", next(run.glob("best-*40")))[1]
    out = td3robot("inspect", run)[1]
    assert "50 of 60 steps" in out
    assert f"yes: td3robot train --resume {run}\n" in out
    assert f"yes: td3robot train --resume {run}\n" in td3robot("inspect", next(run.glob("best-*")))[1]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (20, "warning: 20 steps are too few to learn: learning begins after training.random_steps 20"),
        (39, None),
    ],
)
def test_too_few_steps_are_a_warning(td3robot, tmp_path, set_small, steps, said):
    status, out, err = td3robot("train", PENDULUM, "--out", tmp_path / "run", *set_small, "--steps", steps, "--json")
    assert status == 0
    assert ("warning: " in err) == (said is not None)
    assert said is None or said in " ".join(err.split())
    assert json.loads(out)["best_step"] == steps  # evaluated at its end, although training.evaluate_every is 40
    assert json.loads(out)["best_evaluation"] is not None


def test_inspect_all_has_every_setting(td3robot, made):
    status, out, err = td3robot("inspect", made, "--all")
    assert (status, err) == (0, "")
    for leaf in ("trained_on.id", "evaluation.mean_return", "made_with.torch", "contract."):
        assert leaf in out


def test_plot_draws_a_picture(td3robot, made, tmp_path):
    status, out, _ = td3robot("plot", made, "--out", tmp_path / "new" / "picture.png")
    assert (status, out) == (0, "")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("part", "name"), [("arm", "ur10e"), ("gripper", "robotiq_hand_e")])
def test_eval_refuses_another_arm_before_it_looks_for_goals(td3robot, part, name):
    trained = {"arm": "ur5e", "gripper": "robotiq_2f85"}[part]
    assert_one_line(
        td3robot("eval", ROOT / "checkpoints" / "ur5e_reach", "--set", f"environment.robot.{part}={name}"),
        f"trained for the {part} '{trained}', and the simulation's is '{name}'; choose the simulation of a {trained}",
    )


def test_a_run_that_was_not_evaluated_yet_can_be_plotted(td3robot, tmp_path, made):
    (tmp_path / "metrics.csv").write_bytes((made / "metrics.csv").read_bytes())
    status, _, err = td3robot("plot", tmp_path)
    assert status == 0, err
    assert (tmp_path / "training.png").is_file()


def test_resume_continues_to_more_steps(td3robot, tmp_path, set_small):
    run = tmp_path / "run"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    assert_one_line(td3robot("train", "--resume", run), "already at step 60", "--steps N")
    status, out, err = td3robot("train", "--resume", run, "--steps", 90, "--json")
    assert status == 0, err
    assert only_json(out)["step"] == 90
    assert newest(run).config().training.steps == 90
    status, _, err = td3robot("train", "--resume", newest(run).path, "--steps", 100)
    assert status == 0, err
    assert newest(run).path.name == "last-000000100"


def test_resuming_says_which_settings_are_newer_than_the_run(td3robot, tmp_path, set_small, sign):
    run = tmp_path / "run"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    path = newest(run).path
    config = yaml.safe_load((path / "config.yaml").read_text())
    del config["agent"]["policy_freq"], config["training"]["overlap"]
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    sign(path, "config.yaml")
    status, _, err = td3robot("train", "--resume", run, "--steps", 90)
    assert status == 0, err
    (line,) = [line for line in err.splitlines() if "older than some settings" in line]
    assert "which take their defaults: agent.policy_freq 2, training.overlap False; its results may differ" in line
    _, _, err = td3robot("train", "--resume", run, "--steps", 120)
    assert "older than" not in err


def test_settings_that_a_run_lacks_are_one_line_however_many_there_are(td3robot, tmp_path, set_small, sign):
    run = tmp_path / "run"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    path = newest(run).path
    config = yaml.safe_load((path / "config.yaml").read_text())
    for name in ("policy_freq", "tau", "n_step", "greedy_share", "noise_clip"):
        del config["agent"][name]
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    sign(path, "config.yaml")
    _, _, err = td3robot("train", "--resume", run, "--steps", 90)
    (line,) = [line for line in err.splitlines() if "older than some settings" in line]
    assert "and 2 more (td3robot inspect RUN --all names them)" in line


def test_more_counts_from_where_the_run_is(td3robot, tmp_path, set_small):
    run = tmp_path / "run"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    status, out, err = td3robot("train", "--resume", run, "--more", 25, "--json")
    assert status == 0, err
    assert only_json(out)["step"] == 85
    assert_one_line(td3robot("train", "--resume", run, "--more", 5, "--steps", 200), "give one of them")
    assert_one_line(td3robot("train", PENDULUM, "--more", 5), "go with --resume RUN")


@pytest.mark.parametrize("name", ["ur5e_reach", "ur5e_grasp"])
def test_resuming_a_released_policy_says_what_to_type_instead_and_nothing_before(td3robot, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for named in (name, ROOT / "checkpoints" / name):
        assert_one_line(
            td3robot("train", "--resume", named, "--more", 10),
            f"{named} was saved for play",
            f"begin from its networks: td3robot train {name} --init-from {named}",
        )
    assert not list(tmp_path.iterdir())


def test_a_policy_beside_others_is_refused_in_its_own_words_whoever_works_there(td3robot, tmp_path):
    policy = tmp_path / "ur5e_reach"
    shutil.copytree(ROOT / "checkpoints" / policy.name, policy)
    with closing(RunLock(tmp_path)):
        assert_one_line(td3robot("train", "--resume", policy, "--more", 10), f"{policy} was saved for play")


def test_a_checkpoint_outside_a_run_directory_does_not_resume_beside_itself(td3robot, tmp_path, set_small):
    run, alone = tmp_path / "run", tmp_path / "alone"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    shutil.copytree(newest(run).path, alone)
    assert_one_line(
        td3robot("train", "--resume", alone, "--more", 10), f"{alone} is a checkpoint outside a run directory"
    )


def test_a_run_resumes_with_another_setting_for_a_reason_that_is_recorded(td3robot, tmp_path, set_small):
    run, slower = tmp_path / "run", "--set=agent.learning_rate=0.0003"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    assert_one_line(td3robot("train", "--resume", run, "--more", 20, slower), "say why: --changed REASON")
    status, _, err = td3robot("train", "--resume", run, "--more", 20, slower, "--changed", "the return falls")
    assert status == 0, err
    said = "at step 60: agent.learning_rate from 0.001 to 0.0003 (the return falls); no exact resume"
    assert said in err
    recorded = [{"step": 60, "settings": {"agent.learning_rate": [0.001, 0.0003]}, "why": "the return falls"}]
    assert json.loads((run / "changes.json").read_text()) == newest(run).document("changes") == recorded
    status, _, err = td3robot("train", "--resume", run, "--more", 20)
    assert (status, "at step 60:" in err) == (0, False), err
    assert newest(run).config().agent.learning_rate == 0.0003
    assert newest(run).document("changes") == recorded
    assert said in td3robot("inspect", newest(run).path)[1]


def test_a_changed_learning_rate_reaches_the_optimizer_and_the_moments_stay(pendulum_trainer, tmp_path):
    trainer = pendulum_trainer()
    trainer.train()
    saved = newest(tmp_path / "run")
    trainer.close()
    changed = pendulum_trainer(["agent.learning_rate=0.0003"])
    changed.resume(saved)
    (group,) = changed.agent.actor_optimizer.param_groups
    assert group["lr"] == 0.0003
    assert changed.agent.actor_optimizer.state
    changed.close()


def test_a_change_of_domain_randomization_is_called_by_its_levels():
    from td3robot.config import load_config
    from td3robot.learning.run_directory import recorded_change

    reach = Path("ur5e_reach_quick")
    change = recorded_change(load_config(reach), load_config(reach, ["environment.disturbance=real"]), 7, "why")
    assert change == {"step": 7, "settings": {"environment.disturbance": ["off", "real"]}, "why": "why"}


def test_a_change_that_was_never_saved_leaves_no_trace(td3robot, tmp_path, set_small):
    run = tmp_path / "run"
    td3robot("train", PENDULUM, "--out", run, *set_small)
    (run / "changes.json").write_text("[]")
    assert td3robot("train", "--resume", run, "--more", 20)[0] == 0
    assert not (run / "changes.json").exists()
    assert not newest(run).has("changes")


@pytest.mark.thorough
def test_a_run_that_begins_with_networks_trained_for_something_else_says_for_what(td3robot, tmp_path):
    status, _, err = td3robot(
        "train", "ur5e_reach", "--init-from", "ur5e_reach", "--out", tmp_path / "run", "--steps", 2,
        "--set=environment.guard.max_tcp_speed_m_s=0.2", "--set=training.environments=1",
        "--set=training.overlap=false", "--set=training.evaluation_episodes=1", "--set=environment.episode_s=1",
        "--set=training.learner=reference",
    )  # fmt: skip
    assert status == 0, err
    assert "note: guard.max_tcp_speed_m_s is 0.2 here and was 0.25 in training" in err


def test_a_run_begins_with_another_s_networks(td3robot, tmp_path, made, set_small):
    warm = tmp_path / "warm"
    status, _, err = td3robot("train", PENDULUM, "--init-from", made, "--out", warm, "--seed", 3, *set_small)
    assert status == 0, err
    saved = newest(warm)
    assert (saved.config().seed, saved.document("counters")["warm_start"]) == (3, True)
    assert newest(made).document("counters")["warm_start"] is False
    status, _, err = td3robot("train", "--resume", warm, "--steps", 80)
    assert status == 0, err
    assert newest(warm).document("counters")["warm_start"] is True


def test_a_run_is_not_overwritten(td3robot, made, set_small):
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    assert_one_line(
        td3robot("train", PENDULUM, "--out", made, *set_small), "exists and is not empty", f"--resume {made}"
    )
    assert before == {path: path.stat().st_mtime_ns for path in made.rglob("*")}


def test_export_and_import_of_the_six_files(td3robot, made, tmp_path, set_small):
    status, _, err = td3robot("export", newest(made).path, "--legacy", f"{tmp_path}/old_", "--a-max", 2)
    assert status == 0, err
    assert len(list(tmp_path.glob("old_*"))) == 6
    status, out, err = td3robot(
        "import", f"{tmp_path}/old_", "--config", PENDULUM, "--out", tmp_path / "new", "--a-max", 2, *set_small
    )
    assert (status, out) == (0, "")
    assert "carry no targets" in err
    saved, original = newest(tmp_path / "new"), newest(made)
    for name in ("actor", "Q1", "Q2"):
        for key, value in original.arrays(name).items():
            assert (saved.arrays(name)[key] == value).all()
    assert td3robot("train", "--resume", tmp_path / "new")[0] == 0


def test_an_import_that_could_not_be_saved_is_an_error(td3robot, made, tmp_path, set_small, monkeypatch):
    from td3robot.policy import checkpoint_writer

    def no_room(*_):
        raise OSError(28, "No space left on device")

    td3robot("export", newest(made).path, "--legacy", f"{tmp_path}/old_", "--a-max", 2)
    monkeypatch.setattr(checkpoint_writer, "save_file", no_room)
    status, _, err = td3robot(
        "import", f"{tmp_path}/old_", "--config", PENDULUM, "--out", tmp_path / "new", "--a-max", 2, *set_small
    )
    assert "No space left on device" in err
    assert status == 2


BAD = {
    "configuration missing": (["train", "none.yaml"], "there is no configuration none.yaml"),
    "no configuration": (["train"], "give either a configuration"),
    "two beginnings": (["train", PENDULUM, "--resume", "x"], "give either a configuration"),
    "unknown key": (["train", PENDULUM, "--set", "agent.gama=1"], "did you mean 'gamma'?"),
    "bad override": (["train", PENDULUM, "--set", "gamma"], "section.key=value"),
    "bad steps": (["train", PENDULUM, "--steps", "0"], "training.steps is 0"),
    "bad seed": (["train", PENDULUM, "--seed", "-1"], "seed is -1"),
    "unknown environment": (
        ["train", PENDULUM, "--set", "environment.id=Pendulun-v1", "--out", "OUT"],
        "Pendulun",
    ),
    "discrete actions": (
        ["train", PENDULUM, "--set", "environment.id=CartPole-v1", "--out", "OUT"],
        "bounded Box",
    ),
    "unreachable goals": (
        [
            "train",
            REACH,
            "--out",
            "OUT",
            "--set=environment.task.goals={low: [0.5, 0.8, 0.6], high: [0.59, 0.94, 0.79]}",
        ],
        "cannot reach",
    ),
    "resume from nothing": (["train", "--resume", "none"], "there is no run none; td3robot list shows your runs"),
    "resume with another seed": (["train", "--resume", "none", "--seed", "3"], "are for a new run"),
    "out under a file": (["train", PENDULUM, "--out", "FILE/run"], "Not a directory"),
    "out is a file": (["train", PENDULUM, "--out", "FILE"], "exists and is not empty"),
    "warm start from nothing": (["train", PENDULUM, "--init-from", "none", "--out", "OUT"], "no checkpoint none"),
    "change without settings": (
        ["train", "--resume", "MADE", "--more", "9", "--changed", "x"],
        "--changed REASON says why",
    ),
    "change without a reason": (
        ["train", "--resume", "MADE", "--more", "9", "--set", "agent.tau=0.1"],
        "say why: --changed REASON",
    ),
    "change that needs no reason": (
        ["train", "--resume", "MADE", "--more", "9", "--set", "agent.device=cpu", "--changed", "x"],
        "agent.device needs no reason",
    ),
    "change of nothing": (
        ["train", "--resume", "MADE", "--more", "9", "--set", "agent.tau=0.005", "--changed", "x"],
        "changes nothing",
    ),
    "change of what was saved": (
        ["train", "--resume", "MADE", "--more", "9", "--set", "agent.hidden=[9]", "--changed", "x"],
        "agent.hidden cannot be changed in a resumed run",
    ),
    "unknown name": (["eval", "ur5_reach"], "did you mean 'ur5e_reach'?"),
    "unknown configuration": (["train", "ur5e_graps"], "did you mean 'ur5e_grasp'?"),
    "path that a clone would have": (["train", "configs/ur5e_reach.yaml"], "did you mean 'ur5e_reach'?"),
    "unknown cell": (["check-robot", "--robot", "ur5"], "did you mean 'ur5e'?"),
    "copy of nothing": (["copy", "ur5e_reech"], "did you mean 'ur5e_reach'?"),
    "copy over a file": (["copy", "ur5e", "FILE"], "exists already"),
    "export to a file": (
        ["export", "MADE", "--out", "reach.onnx"],
        "--out reach.onnx does not say in which form; give --onnx reach.onnx for one ONNX file, or --legacy reach for",
    ),
    "schema of nothing": (["schema", "rnu"], "did you mean 'run'?"),
    "warm start of a resumed run": (
        ["train", "--resume", "MADE", "--init-from", "MADE"],
        "--resume continues a run as it was",
    ),
    "warm start from another layout": (
        ["train", REACH, "--init-from", "MADE", "--out", "OUT", "--set=training.environments=1"],
        "observation field 0 differs: 'q'",
    ),
    "warm start from other sizes": (["train", PENDULUM, "--init-from", "MADE", "--out", "OUT"], "actor"),
    "warm start from a damaged checkpoint": (
        ["train", PENDULUM, "--init-from", "DAMAGED", "--out", "OUT"],
        "is damaged: actor.safetensors",
    ),
    "object too wide": (
        ["train", GRASP, "--out", "OUT", "--set=environment.task.object.size_m=[0.09,0.09,0.04]"],
        "the object is 90 mm wide where it is gripped, and the jaw takes at most 80 mm",
    ),
    "patch out of reach": (
        ["train", GRASP, "--out", "OUT", "--set=environment.task.patch_high=[0.4,0.75]"],
        "which the arm cannot reach",
    ),
    "unknown disturbance": (
        ["train", GRASP, "--out", "OUT", "--set=environment.disturbance=reel"],
        "did you mean 'real'? (choices: mild, off, real)",
    ),
    "eval of nothing": (["eval", "none"], "there is no checkpoint none"),
    "eval of a file": (["eval", "FILE"], "not a td3robot checkpoint"),
    "eval of a foreign directory": (["eval", "EMPTY"], "contains none"),
    "eval with unknown key": (["eval", "MADE", "--set", "environment.idd=x"], "did you mean 'id'?"),
    "inspect of nothing": (["inspect", "none"], "there is no checkpoint none"),
    "inspect of a damaged checkpoint": (["inspect", "DAMAGED"], "is damaged: actor.safetensors"),
    "eval of a damaged checkpoint": (["eval", "DAMAGED", "--json"], "is damaged: actor.safetensors"),
    "resume of a damaged checkpoint": (["train", "--resume", "DAMAGED"], "is damaged: actor.safetensors"),
    "resume from a policy": (
        ["train", "--resume", "BEST", "--steps", "100"],
        "saved for play; resume its run: td3robot train",
    ),
    "plot of nothing": (["plot", "none"], "nothing to plot"),
    "plot into a file": (["plot", "MADE", "--out", "FILE/x.png"], "/file"),
    "plot of unknown kind": (["plot", "MADE", "--out", "OUT/x.xyz"], "xyz"),
    "video of unknown kind": (["eval", "MADE", "--video", "OUT/x.gif"], "is written as .mp4"),
    "nothing to export": (["export", "MADE"], "--legacy PREFIX"),
    "export of a policy": (["export", "BEST", "--legacy", "OUT/x_"], "saved for play"),
    "import of nothing": (["import", "none_", "--config", PENDULUM, "--out", "OUT"], "none_actor is missing"),
    "onnx into a file": (["export", "MADE", "--onnx", "FILE/x.onnx"], "/file"),
}


@pytest.fixture
def places(tmp_path, made) -> dict[str, Path]:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    saved = newest(made).path
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in saved.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "actor.safetensors").write_bytes(b"\0" * (saved / "actor.safetensors").stat().st_size)
    best = find(made, ("best",))
    return {
        "FILE": tmp_path / "file", "EMPTY": tmp_path / "empty", "OUT": tmp_path / "out", "MADE": made,
        "DAMAGED": damaged, "BEST": best,
    }  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_ends_with_one_line_and_status_2(td3robot, tmp_path, monkeypatch, places, case):
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD[case]
    for name, path in places.items():
        arguments = [str(path) + a.removeprefix(name) if a.split("/")[0] == name else a for a in arguments]
    result = td3robot(*arguments)
    if "needs the extra" in result[2]:
        pytest.skip(result[2].strip())
    assert_one_line(result, words)
    assert not (tmp_path / "checkpoints").exists()
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (["eval", "--video", "OUT/x.mp4"], "imageio", "video"),
        (["export", "--onnx", "OUT/x.onnx"], "onnxruntime", "onnx"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    td3robot, tmp_path, made, monkeypatch, arguments, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    arguments = [argument.replace("OUT", str(tmp_path / "out")) for argument in arguments]
    assert_one_line(td3robot(arguments[0], made, *arguments[1:]), f"pip install 'td3robot[{extra}]'")
    assert not (tmp_path / "out").exists()


def test_a_mistyped_option_ends_with_status_2(td3robot):
    status, out, err = td3robot("train", "--stps", 5)
    assert (status, out) == (2, "")
    assert "--stps" in err
    assert "Traceback" not in err


def commands() -> list[list[str]]:
    found = []
    for name, command in typer.main.get_command(cli.app).commands.items():
        found += [[name, inner] for inner in command.commands] if hasattr(command, "commands") else [[name]]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_s_help_has_an_example(td3robot, command):
    status, out, err = td3robot(*command, "--help")
    assert (status, err) == (0, "")
    assert f"Example: td3robot {' '.join(command)}" in out
    assert td3robot(*command, "-h")[1] == out
    usage = out.partition("\n\n")[0]
    assert "{" not in usage and "_" not in usage, "what to type is named as people call it"


def test_help_starts_without_what_takes_long_to_import():
    program = (
        "import sys\n"
        "from td3robot.cli import main\n"
        "sys.argv = ['td3robot', '--help']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print([name for name in ('torch', 'mujoco', 'roboticstoolbox') if name in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0
    assert result.stderr.strip() == "[]"
    assert "deploy" in result.stdout


def start(*arguments, cwd: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "td3robot", *map(str, arguments)],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_real_process_ends_a_mistake_with_status_2(tmp_path):
    process = start("eval", "none", "--json", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert_one_line((process.returncode, out, err), "there is no checkpoint none")


def test_ctrl_c_saves_and_says_how_to_resume(td3robot, tmp_path, set_small):
    process = start("train", PENDULUM, "--out", "run", "--json", *set_small, "--steps", 10_000_000, cwd=tmp_path)
    deadline = time.monotonic() + 90
    while len(list(tmp_path.glob("run/last-*"))) < 2:  # training.keep_last
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopping after this step; saving" in err
    assert "resume with: td3robot train --resume run" in err
    step = only_json(out)["step"]
    run = tmp_path / "run"
    assert newest(run).document("counters")["step"] == step
    assert len(list(run.glob("last-*"))) == 2

    status, out, err = td3robot("train", "--resume", run, "--steps", step + 30, "--json")
    assert status == 0, err
    assert only_json(out)["step"] == step + 30
    assert f"step {step} of {step + 30}" in err


class Interrupted(io.RawIOBase):
    """A stream on which a signal arrives in the middle of the first write."""

    def __init__(self, descriptor):
        self.descriptor, self.signals = descriptor, [signal.SIGUSR1]

    def writable(self):
        return True

    def fileno(self):
        return self.descriptor

    def write(self, data):
        if self.signals:
            signal.raise_signal(self.signals.pop())
            sum(range(1000))  # its handler runs between two instructions
        return os.write(self.descriptor, bytes(data))


def test_a_signal_that_comes_while_something_is_printed_can_print_too():
    read, write = os.pipe()
    stream = io.TextIOWrapper(io.BufferedWriter(Interrupted(write)), line_buffering=True)
    console = type(terminal.stderr)(file=stream)
    before = signal.signal(signal.SIGUSR1, lambda *_: console.print("stopping", markup=False))
    try:
        console.print("step 100", markup=False)
        console.print("saved", markup=False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert os.read(read, 1000) == b"stopping\nstep 100\nsaved\n"
    stream.close()
    os.close(read)
    os.close(write)
