"""Records read back: the same figures as the report's, bounded memory, and a sentence for whatever is wrong."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_robot_env
from td3robot.config import load_config
from td3robot.deploy.episode import ArmFigures
from td3robot.deploy.operator import Operator
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session as DeployedSession
from td3robot.deploy.session import _line
from td3robot.records import Record, RecordError
from td3robot.report.html import render
from td3robot.report.session import read_session
from td3robot.report.session_page import session_page
from td3robot.tasks.interface import Task

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"


class Agreeing(Operator):
    """Agrees to everything, and stops after so many looks."""

    def __init__(self, stop_after=None):
        self.looks, self.stop_after = 0, stop_after

    def say(self, text):
        pass

    def stop_wanted(self):
        self.looks += 1
        return self.stop_after is not None and self.looks > self.stop_after

    def agree(self, what):
        pass

    def take(self, what):
        pass

    def accepts(self, offer):
        return False

    def next_periods(self, rate_hz, ahead):
        return round(rate_hz)

    def require_keys(self):
        pass


@pytest.fixture
def deployed(tmp_path):
    """Run a session on the simulated arm, and give its record and the figures that were counted meanwhile."""

    def run(mode="run", stop_after=None, episodes=2):
        environment = make_robot_env(load_config(REACH, ["environment.episode_s=1"]).environment)
        record = Record(tmp_path / "session" / "record.jsonl")
        record.begin(mode, checkpoint="policy", check=None, contract=dict(environment.contract().terms))
        rng = np.random.default_rng(0)
        session = DeployedSession(
            environment,
            lambda observation: rng.uniform(-1, 1, 3).astype(np.float32),
            record,
            Agreeing(stop_after),
            mode,
        )
        session.run(episodes, 7)
        record.close()
        environment.close()
        return record.path, session

    return run


def test_a_record_alone_gives_the_figures_that_were_counted(deployed):
    path, session = deployed()
    wanted, found = summarize(session.episodes), read_session(path).figures()
    for name in ("episodes", "success_rate", "success_ci95", "mean_final_distance_m", "steps", "guard_interventions",
                 "missed_ticks", "ended", "faults"):  # fmt: skip
        assert found[name] == pytest.approx(wanted[name]), name
    assert found["tracking"] == pytest.approx(wanted["tracking"], abs=1e-6)
    assert found["decide_ms"] == pytest.approx(wanted["decide_ms"])
    assert found["mean_return"] is None
    assert found["max_tcp_speed_m_s"] is None


def test_why_the_gripper_does_not_obey_is_said_and_recorded_once_each_time(deployed, monkeypatch):
    words = iter(["", "open again", "open again", "", "open again", *[""] * 100])
    monkeypatch.setattr(Task, "gripper_message", lambda task, state, goals: next(words))
    path, _ = deployed()
    assert [event.text for event in read_session(path).events if event.what == "gripper"] == ["open again"] * 2


def test_a_report_beside_the_record_comes_first(write_record):
    folder = write_record()
    (folder / "report.json").write_text(json.dumps({"figures": {"episodes": 1, "mean_return": 12.5}}))
    found = read_session(folder).figures()
    assert found["mean_return"] == 12.5
    assert found["missed_ticks"] == 0


def test_an_unreadable_report_is_said_and_the_record_stands(write_record):
    folder = write_record()
    (folder / "report.json").write_text("{")
    session = read_session(folder)
    assert "report.json cannot be read" in session.report_error
    assert session.figures()["episodes"] == 3


def test_people_count_episodes_from_one(write_record):
    assert [episode.number for episode in read_session(write_record(episodes=2)).episodes] == [1, 2]
    assert _line(ArmFigures(0, 7), "run").startswith("episode 1: no success")


def test_the_operator_s_stop_is_an_event(deployed):
    path, _ = deployed(stop_after=5)
    session = read_session(path)
    assert session.stopped_by == "operator"
    assert [event.text for event in session.events] == ["stopped the arm"]
    assert session.figures()["ended"] == {"operator": 1}
    assert session.whole


def test_what_the_operator_allowed_is_recorded(deployed):
    path, _ = deployed(mode="confirm", episodes=1)
    assert [event.text for event in read_session(path).events] == ["let the arm move for 20 periods"]


def test_a_cut_record_counts_its_last_episode_as_failed(write_record):
    folder = write_record(episodes=2)
    path = folder / "record.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-5]) + lines[-5][:40])
    session = read_session(folder)
    assert not session.whole
    figures = session.figures()
    assert figures["ended"] == {"time": 1, "cut off": 1}
    assert figures["success_rate"] == 0.5


def test_curves_are_what_the_record_says(write_record):
    session = read_session(write_record(episodes=1, periods=30))
    assert session.joint_names[0] == "shoulder_pan_joint"
    times, wished = session.joints.curve(0)
    assert times == pytest.approx(0.05 * np.arange(1, 31))
    assert wished == pytest.approx(-1.57 + 0.11 * np.sin(2 * np.pi * np.arange(30) / 50))
    _, error = session.joints.curve(4 * 6)
    assert np.isnan(error[0])
    assert error[1:] == pytest.approx(-0.01)
    assert session.latency.curve(1)[1] == pytest.approx(5.0)
    assert session.latency.curve(2)[1][1:] == pytest.approx(50.0)
    assert len(session.guard) == 3


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_record(write_record):
    peaks = []
    for name, episodes in (("short", 40), ("long", 120)):
        folder = write_record(name, episodes=episodes, periods=100)
        tracemalloc.start()
        session = read_session(folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert session.figures()["steps"] == 100 * episodes
    size = (folder / "record.jsonl").stat().st_size
    assert peaks[1] < peaks[0] + 2**21 < size


def test_only_some_episodes_are_listed_and_failures_first(write_record):
    session = read_session(write_record(episodes=150, periods=1, failing={140}))
    assert session.episodes_left_out == 49
    assert session.episodes[-1].number == 141


BAD = {
    "empty": (b"", "is empty"),
    "not JSON": (b"hello\nworld\n", "line 1 is not JSON"),
    "not text": (b"\xff\xfe\x00\n\x00", "line 1 is not JSON"),
    "a list": (b"[1]\n", "line 1 has no kind"),
    "deep": (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
    "of another version": (
        b'{"kind":"session","at":1,"version":2}\n',
        "of version 2, and this td3robot reads version 1",
    ),
    "without times": (b'{"kind":"session"}\n', "line 1, 'session', lacks what it should have"),
    "a period of nothing": (
        b'{"kind":"episode","at":1,"number":0,"seed":1,"mode":"run"}\n{"kind":"period","at":2}\n',
        "line 2, 'period', lacks what it should have .'state'",
    ),
    "a period without an episode": (b'{"kind":"period","at":2}\n', "lacks what it should have"),
    "a check of nothing": (b'{"kind":"check","at":2}\n', "lacks what it should have"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_record_is_refused_in_one_sentence(tmp_path, case):
    content, words = BAD[case]
    path = tmp_path / "record.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=words) as refused:
        read_session(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_another_number_of_joints_in_the_middle_is_refused(write_record):
    folder = write_record(episodes=1)
    path = folder / "record.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[10]["state"]["q"] = [0.0] * 5
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordError, match="line 11"):
        read_session(folder)


TRACKED = {"frames": 660, "rate_hz": 15.0, "latency_ms": 80.0, "work_ms": 25.0, "seen": {"object": 0.74}}
COMPARED = {
    "camera": {"width": 480, "height": 360, "rate_hz": 15.0, "latency_s": 0.05}, "poses": 380,
    "error_mm": {"p50": 1.23, "p95": 2.34, "max": 6.0}, "stamp_off_ms": 8.0, "frames_late": 0.01,
}  # fmt: skip


def with_tracker(path, line):
    record = Record(path)
    record.add("tracker", **line)
    record.close()
    session = read_session(path)
    return session, render(session_page(session))


def test_a_page_says_what_the_tracker_saw(deployed):
    path, _ = deployed(episodes=1)
    session, page = with_tracker(path, TRACKED)
    assert session.whole
    assert "Tracker" in page and "74" in page and "80" in page and "Off the truth" not in page
    session, page = with_tracker(path, TRACKED | COMPARED)
    for text in ("480 x 360 pixels", "1.23", "2.34", "Off the truth", "Frames drawn too late"):
        assert text in page


def test_a_line_about_a_tracker_that_lacks_figures_is_one_sentence(deployed):
    path, _ = deployed(episodes=1)
    with pytest.raises(RecordError, match=r"'tracker', lacks what it should have"):
        with_tracker(path, {"frames": 3})
