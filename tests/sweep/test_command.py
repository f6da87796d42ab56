"""The command, with real trainings: the same runs as alone, whatever happens to their processes."""

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import suppress

import pytest
from learning.same_run import assert_same_run
from waiting import PATIENCE, arguments_of, children_of, linux_only, wait_for

GRID = "agent.gamma=0.9"


@pytest.mark.thorough
@linux_only
@pytest.mark.slow
def test_every_run_is_what_it_would_be_alone_though_one_is_killed(tmp_path, start, alone, long_enough):
    run = tmp_path / "sweep" / "000-seed0"
    swept = start(
        "sweep", "gym_pendulum", "--seeds", 2, "--grid", GRID, "--cores", 1, "--out", tmp_path / "sweep", "--json",
        *long_enough, stdout=-1,
    )  # fmt: skip
    wait_for(lambda: list(run.glob("last-*")), "a checkpoint")
    (training,) = [child for child in children_of(swept.pid) if str(run) in arguments_of(child)]
    os.kill(training, signal.SIGKILL)
    shown, said = swept.communicate(timeout=PATIENCE)
    assert swept.returncode == 0, said
    assert "000-seed0: done, resumed once, step 600: -" in said
    assert "000-seed1: done, step 600: -" in said
    for seed in (0, 1):
        assert_same_run(tmp_path / "sweep" / f"000-seed{seed}", alone(seed, f"--set={GRID}"))
    figures = json.loads(shown)
    assert figures == json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [run["state"] for run in figures["settings"][0]["runs"]] == ["done", "done"]


@linux_only
@pytest.mark.slow
def test_a_terminal_shows_a_table_of_the_runs_as_they_train(tmp_path, start, long_enough):
    ours, terminal = pty.openpty()
    wide = {"COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
    swept = start(
        "sweep", "gym_pendulum", "--seeds", 2, "--grid", GRID, "--cores", 1024, "--out", tmp_path / "sweep",
        *long_enough, variables=wide, stderr=terminal, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the terminal's other end is closed with the sweep
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert swept.wait(PATIENCE) == 0, shown.decode()
    tables = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).split("┃ setting")
    assert any("1 training, 1 waiting" in table for table in tables)
    assert re.search(r"000-seed0 +│ gamma=0.9 +│ 600 of 600 .*│ done", tables[-1])
    assert re.search(r"000-seed1 +│ gamma=0.9 +│ 600 of 600 .*│ done", tables[-1])
    assert "2 done" in tables[-1]


@pytest.mark.slow
@linux_only
def test_an_interrupted_sweep_saves_its_runs_and_goes_on_with_them(tmp_path, start, alone, long_enough):
    sweep = tmp_path / "sweep"
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what it runs in the background
    swept = start("sweep", "gym_pendulum", "--seeds", 2, "--grid", GRID, "--cores", 64, "--out", sweep, *long_enough)
    signal.signal(signal.SIGINT, ignored)
    wait_for(lambda: list((sweep / "000-seed0").glob("last-*")), "a checkpoint")
    second = start("sweep", "--resume", sweep)
    _, refused = second.communicate(timeout=PATIENCE)
    assert second.returncode == 2
    assert f"{sweep} is in use by another training" in refused
    swept.send_signal(signal.SIGTERM)
    _, said = swept.communicate(timeout=PATIENCE)
    assert swept.returncode == 130, said
    assert "stopping; every run saves" in said
    assert f"resume with: td3robot sweep --resume {sweep}" in said
    assert not (sweep / "000-seed1").exists()
    again = start("sweep", "--resume", sweep)
    _, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    for seed in (0, 1):
        assert_same_run(sweep / f"000-seed{seed}", alone(seed, f"--set={GRID}"))


@linux_only
@pytest.mark.slow
def test_a_search_is_stopped_and_goes_on_and_says_which_figures_it_cannot_write(tmp_path, start, long_enough):
    pytest.importorskip("optuna")
    sweep = tmp_path / "sweep"
    searched = start(
        "sweep", "gym_pendulum", "--search", 2, "--range", "agent.gamma=0.8:0.9", "--cores", 64, "--out", sweep,
        *long_enough,
    )  # fmt: skip
    wait_for(lambda: list((sweep / "000-seed0").glob("last-*")), "a checkpoint")
    searched.send_signal(signal.SIGINT)
    _, said = searched.communicate(timeout=PATIENCE)
    assert searched.returncode == 130, said
    (sweep / "sweep.json").unlink()
    (sweep / "sweep.json").mkdir()  # as good as a full disk
    again = start("sweep", "--resume", sweep, "--json", stdout=-1)
    shown, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 1
    assert "sweep.json cannot be written (Is a directory)" in said
    assert "Traceback" not in said
    figures = json.loads(shown)
    assert [run["state"] for setting in figures["settings"] for run in setting["runs"]] == ["done", "done"]
    gammas = {setting["number"]: setting["overrides"][0] for setting in figures["settings"]}
    assert gammas[0] != gammas[1]


@linux_only
@pytest.mark.thorough
def test_a_sweep_that_is_killed_leaves_no_training_behind(tmp_path, start, long_enough):
    swept = start("sweep", "gym_pendulum", "--cores", 1, "--out", tmp_path / "sweep", *long_enough)
    (training,) = wait_for(lambda: children_of(swept.pid), "a training")
    wait_for(lambda: list((tmp_path / "sweep" / "000-seed0").glob("last-*")), "a checkpoint")
    swept.kill()
    swept.wait()
    wait_for(lambda: not os.path.exists(f"/proc/{training}"), "the training's end")  # noqa: PTH110


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gym_pendulum", "--grid", "agent.gama=0.8"], "unknown key 'agent.gama'; did you mean 'gamma'?"),
        (["gym_pendulm"], "gym_pendulum"),
        ([], "give either a configuration to sweep over, or --resume DIRECTORY to resume a sweep"),
        (["--resume", "here", "--seeds", "2"], "--resume goes on with a sweep as it was planned"),
        (["--resume", "nowhere"], "nowhere holds no sweep.yaml; give the directory of a sweep"),
        (["gym_pendulum", "--search", "3"], "--search needs something to vary"),
        (["gym_pendulum", "--ray", "nowhere"], "--ray 'nowhere' is not of the form HOST:PORT, nor auto"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(td3robot, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    status, shown, said = td3robot("sweep", *arguments)
    assert (status, shown) == (2, "")
    assert sentence in " ".join(said.split())
    assert "Traceback" not in said
    assert [path for path in tmp_path.iterdir() if path.name != "state"] == []
