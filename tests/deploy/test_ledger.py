import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from td3robot.deploy.deployment import _play
from td3robot.deploy.ledger import LadderError, Ledger, digest_of
from td3robot.robots.cells import load_cell


@pytest.fixture
def ledger(tmp_path):
    return Ledger(directory=tmp_path / "records")


def climb(ledger, *stages, serial="1", digest="a"):
    for stage in stages:
        ledger.passed(stage, serial, digest, ledger.path, 0.1, None)


def test_the_first_stage_asks_for_nothing(ledger):
    ledger.require("check", "1", "a", None)


@pytest.mark.parametrize(("stage", "below"), [("shadow", "check"), ("confirm", "shadow"), ("run", "confirm")])
def test_each_stage_asks_for_the_one_below(ledger, stage, below):
    with pytest.raises(
        LadderError, match=f"--mode {stage} asks for a passed --mode {below} .*has none; first: --mode check"
    ):
        ledger.require(stage, "1", "a", None)
    climb(ledger, below)
    ledger.require(stage, "1", "a", None)
    for serial, digest in (("2", "a"), ("1", "b")):
        with pytest.raises(LadderError, match="asks for"):
            ledger.require(stage, serial, digest, None)
        ledger.require(stage, serial, digest, "because")


def test_a_skipped_stage_is_answered_with_the_whole_way_and_no_way_around(ledger):
    climb(ledger, "check")
    with pytest.raises(LadderError) as refusal:
        ledger.require("run", "1", "a", None)
    assert str(refusal.value).endswith("has none; first: --mode shadow, then --mode confirm")
    assert "override" not in str(refusal.value)


def test_refusals_have_the_command_to_copy(ledger, tmp_path):
    cell = tmp_path / "my cell.yaml"
    cell.write_text("ur: {host: 127.0.0.2}")
    ledger = Ledger(directory=tmp_path / "records", recovery=load_cell(cell).recovery)
    ledger.latch("1", "it hit the table")
    with pytest.raises(LadderError, match=f"td3robot recover --robot '{cell}'$"):
        ledger.require_released("1")
    assert load_cell(Path("ur5e_standin")).recovery == "td3robot recover --robot ur5e_standin"


def test_after_a_fault_nothing_moves_until_it_is_released_whatever_is_overridden(ledger):
    climb(ledger, "check", "shadow", "confirm")
    ledger.latch("1", "it hit the table")
    for stage in ("confirm", "run"):
        with pytest.raises(LadderError, match=r"it hit the table.*td3robot recover"):
            ledger.require(stage, "1", "a", "because")
    ledger.require("shadow", "1", "a", None)
    ledger.require("run", "2", "a", "because")
    assert ledger.latched("1") == "it hit the table"
    ledger.release("1")
    assert ledger.latched("1") is None
    ledger.require("run", "1", "a", None)


def test_a_damaged_ledger_is_refused(ledger):
    climb(ledger, "check")
    ledger.path.write_text("{")
    with pytest.raises(LadderError, match="cannot be read"):
        ledger.require("shadow", "1", "a", None)


def test_recover_sets_a_damaged_ledger_aside_and_every_other_robot_awaits_its_operator(ledger):
    climb(ledger, "check", "shadow", serial="2")
    whole = ledger.path.read_text()
    ledger.path.write_text(whole[: len(whole) // 2])
    with pytest.raises(LadderError, match=r"cannot be read, .*; look at the robot, and then: td3robot recover"):
        ledger.require_released("1")
    with pytest.raises(LadderError, match="cannot be read"):
        ledger.latch("1", "a protective stop")
    assert "cannot be read" in ledger.latched("1")
    ledger.release("1")
    ledger.require_released("1")
    assert ledger.path.with_name("ledger.json.damaged").read_text() == whole[: len(whole) // 2]
    assert [each.partition(" was stopped")[0] for each in ledger.waiting()] == [
        "Every robot without an entry of its own"
    ]
    for serial in ("2", "3"):
        climb(ledger, "check", serial=serial)  # a passed check releases nothing
        with pytest.raises(LadderError, match="its entry in the ledger was lost"):
            ledger.require_released(serial)
        ledger.release(serial)
        ledger.require_released(serial)


def test_the_digest_tells_checkpoints_apart(checkpoint, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    assert digest_of(checkpoint) == digest_of(checkpoint) != digest_of(tmp_path)


def test_an_arm_that_was_calibrated_anew_is_named_before_it_moves(tmp_path):
    ledger = Ledger()
    ledger.require_calibration("1", "aa")  # nothing is known of it yet
    ledger.note_calibration("1", "aa")
    ledger.require_calibration("1", "aa")
    ledger.require_calibration("2", "bb")
    for now, said in (("bb", "kinematics aa, and now has those bb"), (None, "now has those of the data sheet")):
        with pytest.raises(LadderError, match=f"{said}.*run --mode check first"):
            ledger.require_calibration("1", now)


DIE = """
import os, signal, sys
from pathlib import Path
from td3robot.deploy.ledger import Ledger
with Ledger().driving("1", Path("somewhere")):
    print("driving", flush=True)
    {end}
"""


def drive_and(end):
    """Drive a robot in a process of its own, which comes to an end while it does."""
    return subprocess.run([sys.executable, "-c", DIE.format(end=end)], capture_output=True, text=True)


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGQUIT)", "os._exit(0)"]
)
@pytest.mark.quick("os.kill(os.getpid(), signal.SIGKILL)")
def test_a_program_that_dies_driving_leaves_the_robot_latched_everywhere(end, tmp_path, monkeypatch):
    assert "driving" in drive_and(end).stdout
    monkeypatch.chdir(tmp_path)  # another folder, other records
    ledger = Ledger(tmp_path / "others")
    with pytest.raises(LadderError, match=r"drove robot 1 .*ended without bringing it to rest.*td3robot recover"):
        ledger.require("run", "1", "a", "because")
    with pytest.raises(LadderError, match="ended without"), ledger.driving("1", tmp_path):
        pytest.fail("it was driven")
    with ledger.held("1"):
        assert "ended while it drove" in ledger.latched("1")
        ledger.release("1")
    with ledger.driving("1", tmp_path):
        pass
    ledger.require_released("1")


def test_an_unexpected_error_while_driving_is_a_fault():
    found = drive_and("raise ValueError('a bug')")
    assert "a bug" in found.stderr
    assert Ledger().latched("1") == "the program that drove it ended unexpectedly (ValueError: a bug)"


def test_a_robot_is_driven_by_one_program_at_a_time(tmp_path):
    wait = subprocess.Popen(
        [sys.executable, "-c", DIE.format(end="sys.stdin.read()")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wait.stdout.readline() == "driving\n"
    Ledger().require("run", "2", "a", "because")
    with pytest.raises(LadderError, match=rf"driven by another program \(process {wait.pid}\)"):
        Ledger().require("run", "1", "a", "because")
    with pytest.raises(LadderError, match="driven by another"), Ledger().held("1"):
        pytest.fail("it was recovered under the other's hands")
    wait.communicate()
    assert Ledger().latched("1") is None
    Ledger().require_released("1")


def test_a_fault_latched_while_driving_stays_and_the_first_is_told(tmp_path):
    ledger = Ledger()
    with ledger.driving("1", tmp_path):
        ledger.latch("1", "the cause")
        ledger.latch("1", "a consequence")
    with pytest.raises(LadderError, match="the cause"):
        ledger.require_released("1")


def test_a_fault_in_the_records_of_before_is_still_known(tmp_path):
    old = {"robots": {"1": {"latched": {"at": "then", "fault": "it hit the table"}}, "2": {}}}
    (tmp_path / "ledger.json").write_text(json.dumps(old))
    ledger = Ledger(tmp_path)
    with pytest.raises(LadderError, match="it hit the table"):
        ledger.require_released("1")
    ledger.release("1")
    Ledger(tmp_path).require_released("1")
    assert json.loads((tmp_path / "ledger.json").read_text()) == old  # what a person may have kept stays


def test_without_a_ledger_nothing_moves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LadderError, match=r"cannot be kept .*nothing moves without one; set XDG_STATE_HOME"):
        Ledger().require("run", "1", "a", "because")


def full(descriptor):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_robot_driven_and_so_latched(tmp_path, monkeypatch):
    ledger = Ledger()
    with pytest.raises(LadderError, match=r"could not be written .*No space left"), ledger.driving("1", tmp_path):
        monkeypatch.setattr("os.fsync", full)
        ledger.latch("1", "it hit the table")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(ledger.path.parents[1]))
    with pytest.raises(LadderError, match="ended without bringing it to rest in order"):
        Ledger().require_released("1")


def no_more_files(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_without_open_files_a_sound_ledger_is_not_set_aside(ledger, monkeypatch):
    climb(ledger, "check")
    whole = ledger.path.read_text()
    with monkeypatch.context() as without:
        without.setattr(Path, "read_text", no_more_files)
        with pytest.raises(LadderError, match=r"could not be opened \(Too many open files\).*ulimit -n 1024"):
            ledger.release("1")
    assert ledger.path.read_text() == whole


@pytest.mark.parametrize("what", ["td3robot.locks.open_directory", "os.open"])
def test_without_open_files_nothing_begins(ledger, monkeypatch, tmp_path, what):
    monkeypatch.setattr(what, no_more_files)
    with pytest.raises(LadderError, match=r"Too many open files.*ulimit -n 1024"), ledger.driving("1", tmp_path):
        pytest.fail("it began")


def test_a_session_whose_end_cannot_be_written_down_says_first_how_it_ended(ledger, monkeypatch, tmp_path):
    session = SimpleNamespace(episodes=[], fault=None)
    request = SimpleNamespace(episodes=1, seed=1, options={}, cell=SimpleNamespace(recovery="td3robot recover"))

    def run(*_):
        session.episodes.append("one")
        monkeypatch.setattr("td3robot.locks.open_directory", no_more_files)

    session.run = run
    said = str(_play(session, request, ledger.driving("1", tmp_path)))
    assert re.fullmatch(
        r"the session is over, and the arm rests; but the ledger .* could not be written \(Too many open files\); .*; "
        "it counts as driven until td3robot recover",
        said,
    )
