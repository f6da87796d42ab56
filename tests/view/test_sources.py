"""What there is to see of a policy, a run, a record and a configuration, without any page."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import td3robot
from td3robot.build import robot_spec
from td3robot.errors import ConfigError, RobotError, Td3RobotError
from td3robot.metrics import FollowedLog
from td3robot.records import CHUNK, RecordIndex
from td3robot.robots.cells import load_cell
from td3robot.robots.physical import Status
from td3robot.tasks.interface import Failure
from td3robot.view.episodes import BY_HAND
from td3robot.view.picture import Picture, at_home
from td3robot.view.record import Recorded, Replayed, SimulatedMotion, picture_url_of
from td3robot.view.targets import LiveArm, open_target
from td3robot.view.training import Run

ROOT = Path(td3robot.__file__).parents[1]
SEED = 12345


def test_a_released_policy_is_found_by_name_and_plays_the_episodes_of_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = open_target("ur5e_reach", SEED, False)
    first = source.advance()
    assert first.begins
    snapshots = [source.advance() for _ in range(100)]
    assert snapshots[-1].caption[-1] == "**Success**"
    assert snapshots[-1].lasts_s > 0.5
    assert np.linalg.norm(snapshots[50].state.q - first.state.q) > 0.05
    assert source.advance().begins
    source.close()


def test_charts_of_an_episode_have_its_reward_terms():
    source = open_target("ur5e_reach", SEED, False)
    assert source.charts() == []
    for _ in range(20):
        source.advance()
    distance, terms, changed = source.charts()
    assert {"getting nearer", "being close", "rest"} < {series.label for series in terms.series}
    assert distance.series[0].x.tolist() == pytest.approx(np.arange(1, 20) * 0.05)
    assert changed.span == (0.0, 100.0)
    source.close()


def test_a_caption_writes_no_distance_of_nothing_and_why_an_episode_failed():
    source = open_target("ur5e_grasp_quick", SEED, False)
    source.advance()
    source._figures.steps, source._figures.distance_m = 1, 1e-6
    assert source._snapshot().caption[1] == "return 0.0"
    source._figures.distance_m = 0.012
    source._over, source._failure = True, Failure("never_gripped", 0.1)
    assert source._snapshot().caption[1:] == (
        "12.0 mm left to go, return 0.0",
        "**No success**: never gripped the object",
    )
    source.close()


def test_a_moved_goal_is_gone_to_from_where_the_arm_is():
    source = open_target("ur5e_reach", SEED, False)
    for _ in range(30):
        before = source.advance()
    goal = np.array([0.1, 0.5, 0.3])
    source.set_goal(goal)
    after = source.advance()
    assert np.abs(after.state.q - before.state.q).max() < 0.1
    np.testing.assert_allclose(after.goal, goal)
    for _ in range(95):
        after = source.advance()
    assert np.linalg.norm(Picture(source.workcell).tool().position - goal) > 0.01  # at home, before it is placed
    picture = Picture(source.workcell)
    picture.place(after)
    assert np.linalg.norm(picture.tool().position - goal) < 0.015
    with pytest.raises(ConfigError, match="outside"):
        source.set_goal(np.array([2.0, 0.0, 0.0]))
    source.close()


def test_by_hand_the_arm_goes_where_it_is_asked_as_far_as_the_guard_lets_it():
    source = open_target("ur5e_reach", SEED, False)
    start = source.advance().state.q
    guard = source._environment.guard
    target = start + np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    source.jog(target, 0.0)
    reasons = set()
    for _ in range(150):
        snapshot = source.advance()
        reasons |= set(snapshot.reasons)
        assert np.abs(guard.velocity).max() <= source.workcell.spec.arm.velocity.max()
    assert {"tcp_speed", "acceleration"} & reasons
    assert np.abs(snapshot.state.q - target).max() < 0.02
    below = start.copy()
    below[1] += 1.2  # the tool is asked for below the table
    source.jog(below, 0.0)
    for _ in range(150):
        snapshot = source.advance()
    assert snapshot.reasons
    assert np.abs(snapshot.state.q - below).max() > 0.1
    assert BY_HAND in source.controllers
    source.choose_controller("the policy")
    assert "by the policy" in source.advance().caption[0]
    source.close()


def test_a_configuration_shows_an_arm_that_rests_or_acts_at_random():
    source = open_target(str(ROOT / "configs" / "ur5e_grasp_quick.yaml"), SEED, False)
    first = source.advance()
    for _ in range(20):
        at_rest = source.advance()
    assert np.abs(at_rest.state.q - first.state.q).max() < 0.02
    assert at_rest.objects
    source.choose_controller("random actions")
    for _ in range(20):
        moved = source.advance()
    assert np.abs(moved.state.q - first.state.q).max() > 0.02
    source.close()


def make_run(path, step):
    shutil.copytree(ROOT / "checkpoints" / "ur5e_reach", path / f"best-{step:09d}")


def test_a_run_without_a_checkpoint_waits_for_the_first_and_then_takes_each_newer_one(tmp_path):
    run = Run(tmp_path)
    assert run.workcell is None
    assert run.advance() is None
    assert "No checkpoint yet" in run.status
    make_run(tmp_path, 1000)
    while run.workcell is None:
        run.advance()
    assert run.advance().begins
    played = run._played
    make_run(tmp_path, 2000)
    run.advance()
    assert run._played == played  # not within an episode
    run.next_episode()
    assert run._played.name == "best-000002000"
    run.close()


def test_curves_of_a_run_grow_and_leave_out_a_row_that_is_being_written(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "step,episode/return,reward/progress,guard/lead\n1000,1.5,0.1,\n2000,2.5,0.2,0.01\n30"
    )
    run = Run(tmp_path)
    charts = {chart.title: chart for chart in run.charts()}
    assert charts["Return"].series[0].y.tolist() == [1.5, 2.5]
    assert charts["Reward terms"].series[0].y.tolist() == [0.1, 0.2]
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("00,3.5,0.3,0\n")
    assert {c.title: c for c in run.charts()}["Return"].series[0].x.tolist() == [1000, 2000, 3000]


def test_a_table_that_is_not_there_yet_has_no_columns(tmp_path):
    followed = FollowedLog(tmp_path)
    followed.refresh()
    assert followed.log == {}


def test_a_record_is_played_back_with_its_commands_objects_and_result(write_record):
    source = Recorded(write_record(periods=10), follow=False)
    assert source.workcell.spec.arm.name == "ur5e"
    assert [item.name for item in source.workcell.objects]
    snapshots = [source.advance() for _ in range(10)]
    assert source.advance() is None
    assert source.status == "The end of the record"
    assert snapshots[0].begins
    assert all(snapshot.commanded is not None and snapshot.objects for snapshot in snapshots)
    assert snapshots[-1].caption[-1] == "**Success**"
    assert 0.0 <= snapshots[3].lasts_s <= 1.0
    source.seek(4)
    np.testing.assert_array_equal(source.advance().state.q, snapshots[4].state.q)
    tracking, changed = source.charts()
    assert (tracking.title, tracking.unit) == ("Commanded minus measured", "mrad")
    assert [series.label for series in tracking.series] == [
        "Shoulder pan",
        "Shoulder lift",
        "Elbow",
        "Wrist 1",
        "Wrist 2",
        "Wrist 3",
    ]
    assert len(changed.series[0].x) == 10


def test_a_replay_shows_the_simulated_arm_as_the_ghost_where_something_was_sent(write_record):
    path = write_record(periods=6)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    periods = [line for line in lines if line["kind"] == "period"]
    simulated = SimulatedMotion(6)
    for line in periods[:5]:
        simulated.add(line["at"], np.array(line["state"]["q"]) + 0.01, 0.25)
    source = Replayed(path, simulated)
    snapshots = [source.advance() for _ in range(6)]
    for snapshot in snapshots[:5]:
        np.testing.assert_allclose(snapshot.commanded.q, snapshot.state.q + 0.01, atol=1e-6)
        assert snapshot.commanded.gripper == 0.25
    assert snapshots[5].commanded is None
    (gap,) = source.charts()
    assert gap.title == "Simulated minus measured"
    np.testing.assert_allclose(gap.series[2].y, 10.0, atol=1e-3)
    assert "simulated" in source.ghost


def test_a_record_is_followed_while_it_is_written(write_record):
    path = write_record(periods=4, end=False)
    lines = path.read_bytes()
    path.write_bytes(b"")
    source = Recorded(path, follow=True)
    assert source.workcell is None
    assert source.advance() is None
    whole = lines.splitlines(keepends=True)
    with path.open("ab", buffering=0) as file:
        for line in whole[:4]:  # session, goal, and two periods
            file.write(line)
        assert source.advance().state.stamp == json.loads(whole[3])["state"]["stamp"]
        file.write(whole[4][:40])  # half a line
        assert source.advance() is None
        file.write(whole[4][40:])
        assert source.advance().state.stamp == json.loads(whole[4])["state"]["stamp"]


def test_a_long_record_is_gone_through_piece_by_piece_and_read_where_it_is_looked_at(write_record):
    path = write_record(periods=3, end=False)
    *head, period = path.read_bytes().splitlines(keepends=True)
    count = 2 * CHUNK // len(period) + 10
    with path.open("wb") as file:
        file.writelines([*head[:2], *[period] * count])
    index = RecordIndex(path)
    pieces = 1
    while not index.extend():
        pieces += 1
    assert pieces >= 3
    assert len(index) == count
    assert index.moment(count - 1)["kind"] == "period"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"not a record\n", "is no record of td3robot"),
        (b'{"kind":"period","at":1,"state":{}}\n', "does not say which robot"),
        (b'{"kind":"goal","at":1\n', "is damaged"),
        (b"", "holds no moment"),
    ],
)
def test_what_is_no_record_is_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "record.jsonl"
    path.write_bytes(content)
    with pytest.raises(Td3RobotError, match=sentence):
        Recorded(path, follow=False)


def test_a_record_of_an_arm_that_is_not_known_is_one_sentence(write_record):
    path = write_record(periods=1)
    path.write_text(path.read_text().replace('"arm":"ur5e"', '"arm":"ur6e"'))
    with pytest.raises(ConfigError, match="unknown arm 'ur6e'"):
        Recorded(path, follow=False)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("ur6e_reach", "there is nothing to see at 'ur6e_reach'.*ur5e_reach"),
        ("empty", "is empty: no training has written into it yet"),
        ("other", "is neither a run"),
        ("configs/gym_pendulum.yaml", "the viewer shows arms"),
    ],
)
def test_what_cannot_be_looked_at_is_one_sentence(tmp_path, monkeypatch, target, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    with pytest.raises(ConfigError, match=sentence):
        open_target(target, SEED, False)


class Reporting:
    """A driver that reports, and refuses to be moved."""

    def __init__(self, spec, fault=None):
        self.spec, self.closed, self.fault = spec, False, fault

    def connect(self):
        if self.fault is not None:
            raise RobotError(self.fault)

    def status(self):
        return Status(1.0, 1.0, 0.004, 0, None)

    def read(self):
        return at_home(self.spec)

    def close(self):
        self.closed = True


def test_an_arm_is_opened_for_reading_only_and_let_go_of(monkeypatch):
    cell = load_cell(ROOT / "configs" / "robots" / "ur5e.yaml")
    opened = []

    def driver(self, spec, passive=False):
        opened.append((Reporting(spec), passive))
        return opened[-1][0]

    monkeypatch.setattr(type(cell), "driver", driver)
    source = open_target(str(ROOT / "configs" / "robots" / "ur5e.yaml"), SEED, False)
    snapshot = source.advance()
    assert snapshot.caption == (
        "Read-only; the state is 4 ms old",
        "Tool at (-133, 492, 332) mm in the base frame",
        "Shoulder pan -90.0°, Shoulder lift -90.0°, Elbow 90.0°, Wrist 1 -90.0°, Wrist 2 -90.0°, Wrist 3 0.0°",
        "Gripper 0 % closed",
    )
    assert snapshot.commanded is None
    assert source.actions == frozenset()
    source.close()
    (robot, passive), *others = opened
    assert (passive, others, robot.closed) == (True, [], True)


def test_an_arm_that_cannot_be_reached_is_one_sentence_and_let_go_of(monkeypatch):
    cell = load_cell(ROOT / "configs" / "robots" / "ur5e.yaml")
    robot = Reporting(robot_spec(cell.robot), "192.168.0.10 does not answer")
    monkeypatch.setattr(type(cell), "driver", lambda self, spec, passive=False: robot)
    with pytest.raises(RobotError, match="does not answer"):
        LiveArm(cell, "cell")
    assert robot.closed


def test_what_is_written_right_now_may_be_empty(tmp_path):
    source = open_target(str(tmp_path), SEED, True)
    assert source.advance() is None


@pytest.mark.parametrize(
    ("cell", "url"),
    [
        ({"tracker": {"kind": "tags", "page_port": 47301}}, "http://127.0.0.1:47301"),
        ({"tracker": {"kind": "tags", "page_port": None}}, ""),
        ({"tracker": {"kind": "udp", "port": 47300}}, ""),
        ({"tracker": None}, ""),
        ({}, ""),
    ],
)
def test_a_record_says_where_its_trackers_picture_is(cell, url):
    assert picture_url_of(cell) == url
