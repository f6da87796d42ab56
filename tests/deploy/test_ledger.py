import pytest

from td3robot.deploy.ledger import LadderError, Ledger, digest_of


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "records")


def climb(ledger, *rungs, serial="1", digest="a"):
    for rung in rungs:
        ledger.passed(rung, serial, digest, ledger.path, 0.1, None)


def test_the_first_rung_asks_for_nothing(ledger):
    ledger.require("check", "1", "a", None)


@pytest.mark.parametrize(("rung", "below"), [("shadow", "check"), ("confirm", "shadow"), ("run", "confirm")])
def test_each_rung_asks_for_the_one_below(ledger, rung, below):
    with pytest.raises(LadderError, match=f"--mode {rung} asks for a passed --mode {below} .*--override"):
        ledger.require(rung, "1", "a", None)
    climb(ledger, below)
    ledger.require(rung, "1", "a", None)
    for serial, digest in (("2", "a"), ("1", "b")):
        with pytest.raises(LadderError, match="asks for"):
            ledger.require(rung, serial, digest, None)
        ledger.require(rung, serial, digest, "because")


def test_after_a_fault_nothing_moves_until_it_is_released_whatever_is_overridden(ledger):
    climb(ledger, "check", "shadow", "confirm")
    ledger.latch("1", "it hit the table")
    for rung in ("confirm", "run"):
        with pytest.raises(LadderError, match=r"it hit the table.*td3robot recover"):
            ledger.require(rung, "1", "a", "because")
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


def test_the_digest_tells_checkpoints_apart(checkpoint, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    assert digest_of(checkpoint) == digest_of(checkpoint) != digest_of(tmp_path)


def test_an_arm_that_was_calibrated_anew_is_named_before_it_moves(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.require_calibration("1", "aa")  # nothing is known of it yet
    ledger.note_calibration("1", "aa")
    ledger.require_calibration("1", "aa")
    ledger.require_calibration("2", "bb")
    for now, said in (("bb", "kinematics aa, and now has those bb"), (None, "now has those of the data sheet")):
        with pytest.raises(LadderError, match=f"{said}.*run --mode check first"):
            ledger.require_calibration("1", now)
