"""The command line: figures on standard output, words for people on standard error, status 2 for mistakes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
import yaml

from td3robot import cli
from td3robot.policy.checkpoint import newest

ROOT = Path(__file__).parents[1]
PENDULUM = str(ROOT / "configs" / "gym_pendulum.yaml")
REACH = str(ROOT / "configs" / "ur5e_reach.yaml")
GRASP = str(ROOT / "configs" / "ur5e_grasp.yaml")
EVALUATION_KEYS = [
    "success_rate", "success_ci95", "episodes", "mean_return", "mean_steps", "mean_final_distance_m",
    "max_tcp_speed_m_s", "max_joint_speed_rad_s", "guard_interventions",
]  # fmt: skip


@pytest.fixture
def td3robot(capsys, monkeypatch):
    """Run the command line in this process, and give status, standard output and standard error."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["td3robot", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    return run


@pytest.fixture
def set_small(small) -> list[str]:
    return [f"--set={override}" for override in small]


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
    assert (figures["run"], figures["step"], figures["best_step"]) == (str(tmp_path / "run"), 60, 40)
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


def test_eval_without_json_writes_nothing_on_standard_output(td3robot, made):
    status, out, err = td3robot("eval", made, "--episodes", 1)
    assert (status, out) == (0, "")
    assert "mean_return" in err


def test_eval_refuses_another_environment_and_names_what_an_override_changes(td3robot, made):
    assert_one_line(
        td3robot("eval", made, "--episodes", 1, "--set", "environment.id=MountainCarContinuous-v0"),
        "observation field 0 differs",
    )
    status, _, err = td3robot("eval", made, "--episodes", 1, "--set", "environment.kwargs.g=9.81")
    assert status == 0
    assert "note: environment.kwargs.g is 9.81 here and was absent in training" in err


def test_inspect_json_tells_what_a_checkpoint_is(td3robot, made):
    for path, resumable in ((made, False), (newest(made).path, True)):
        status, out, _ = td3robot("inspect", path, "--json")
        figures = only_json(out)
        assert status == 0
        assert (figures["name"], figures["seed"], figures["verified"]) == ("gym_pendulum", 0, True)
        assert figures["resumable"] is resumable
        assert figures["step"] == (60 if resumable else 40)
        assert figures["bytes"] > 0
        assert set(figures["evaluation"]) == set(EVALUATION_KEYS)


def test_inspect_shows_a_table(td3robot, made):
    status, out, err = td3robot("inspect", made)
    assert (status, out) == (0, "")
    assert "every file verified" in err
    assert "Pendulum-v1" in err


def test_plot_draws_a_picture(td3robot, made, tmp_path):
    status, out, _ = td3robot("plot", made, "--out", tmp_path / "new" / "picture.png")
    assert (status, out) == (0, "")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_not_evaluated_yet_can_be_plotted(td3robot, tmp_path, made):
    (tmp_path / "metrics.csv").write_bytes((made / "metrics.csv").read_bytes())
    status, _, err = td3robot("plot", tmp_path)
    assert status == 0, err
    assert (tmp_path / "training.png").is_file()


def test_resume_goes_on_to_more_steps(td3robot, tmp_path, set_small):
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
    assert "was saved before agent.policy_freq existed: the run goes on with 2, which cannot be changed" in err
    assert "was saved before training.overlap existed" in err
    _, _, err = td3robot("train", "--resume", run, "--steps", 120)
    assert "existed" not in err


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
    status, _, err = td3robot("export", newest(made).path, "--legacy", f"{tmp_path}/old_")
    assert status == 0, err
    assert len(list(tmp_path.glob("old_*"))) == 6
    status, out, err = td3robot(
        "import", f"{tmp_path}/old_", "--config", PENDULUM, "--out", tmp_path / "new", *set_small
    )
    assert (status, out) == (0, "")
    assert "carry no targets" in err
    saved, original = newest(tmp_path / "new"), newest(made)
    for name in ("actor", "Q1", "Q2"):
        for key, value in original.arrays(name).items():
            assert (saved.arrays(name)[key] == value).all()
    assert td3robot("train", "--resume", tmp_path / "new")[0] == 0


def test_an_import_that_could_not_be_saved_is_an_error(td3robot, made, tmp_path, set_small, monkeypatch):
    from td3robot.policy import checkpoint

    def no_room(*_):
        raise OSError(28, "No space left on device")

    td3robot("export", newest(made).path, "--legacy", f"{tmp_path}/old_")
    monkeypatch.setattr(checkpoint, "save_file", no_room)
    status, _, err = td3robot("import", f"{tmp_path}/old_", "--config", PENDULUM, "--out", tmp_path / "new", *set_small)
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
    "resume from nothing": (["train", "--resume", "none"], "there is no checkpoint none"),
    "resume with another seed": (["train", "--resume", "none", "--seed", "3"], "only --steps and --set agent.device"),
    "out under a file": (["train", PENDULUM, "--out", "FILE/run"], "Not a directory"),
    "out is a file": (["train", PENDULUM, "--out", "FILE"], "exists and is not empty"),
    "warm start from nothing": (["train", PENDULUM, "--init-from", "none", "--out", "OUT"], "no checkpoint none"),
    "warm start of a resumed run": (
        ["train", "--resume", "MADE", "--init-from", "MADE"],
        "--resume goes on with the run",
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
    "eval of a file": (["eval", "FILE"], "no td3robot checkpoint"),
    "eval of a foreign directory": (["eval", "EMPTY"], "holds none"),
    "eval with unknown key": (["eval", "MADE", "--set", "environment.idd=x"], "did you mean 'id'?"),
    "inspect of nothing": (["inspect", "none"], "there is no checkpoint none"),
    "inspect of a damaged checkpoint": (["inspect", "DAMAGED"], "is damaged: actor.safetensors"),
    "eval of a damaged checkpoint": (["eval", "DAMAGED", "--json"], "is damaged: actor.safetensors"),
    "resume of a damaged checkpoint": (["train", "--resume", "DAMAGED"], "is damaged: actor.safetensors"),
    "resume from a policy": (["train", "--resume", "BEST", "--steps", "100"], "saved for play only"),
    "plot of nothing": (["plot", "none"], "nothing to plot"),
    "plot into a file": (["plot", "MADE", "--out", "FILE/x.png"], "/file"),
    "plot of unknown kind": (["plot", "MADE", "--out", "OUT/x.xyz"], "xyz"),
    "video of unknown kind": (["eval", "MADE", "--video", "OUT/x.gif"], "is written as .mp4"),
    "nothing to export": (["export", "MADE"], "--legacy PREFIX"),
    "export of a policy": (["export", "BEST", "--legacy", "OUT/x_"], "saved for play only"),
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
    (best,) = made.glob("best-*")
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
    assert_one_line(td3robot(*arguments), words)
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


def test_ctrl_c_saves_and_says_how_to_go_on(td3robot, tmp_path, set_small):
    process = start("train", PENDULUM, "--out", "run", "--json", *set_small, "--steps", 10_000_000, cwd=tmp_path)
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob("run/last-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopping after this step; saving" in err
    assert "go on with: td3robot train --resume run" in err
    step = only_json(out)["step"]
    run = tmp_path / "run"
    assert newest(run).document("counters")["step"] == step
    assert len(list(run.glob("last-*"))) == 1

    status, out, err = td3robot("train", "--resume", run, "--steps", step + 30, "--json")
    assert status == 0, err
    assert only_json(out)["step"] == step + 30
    assert f"step {step} of {step + 30}" in err
