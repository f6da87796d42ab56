"""Replays: the simulated arm repeats a simulated record exactly; the gap and the export are what the record says."""

import json
import sys

import numpy as np
import pytest

from td3robot.geometry import rotation_of
from td3robot.records import Record, RecordError
from td3robot.report import foxglove
from td3robot.report.replay import Gap, Replay, in_real_time


@pytest.fixture
def sine(write_record):
    return write_record(episodes=2, periods=40)


def simulated_record(folder, spec, robot):
    """Record the simulated arm itself, on its way by a sine of its joints."""
    record = Record(folder / "record.jsonl")
    record.begin("run", checkpoint="policy", cell={"robot": {"backend": "ur", "arm": "ur5e"}})
    record.add("episode", number=0, seed=0, mode="run")
    robot.move_home()
    for step in range(40):
        q = spec.arm.home + 0.05 * np.sin(step / 8)
        state = robot.read()
        command = {"q": q, "gripper": 0.0}
        record.add(
            "period", episode=0, step=step, decide_s=0.0, reasons=[], observation=[0.0], action=[0.0],
            state={"stamp": state.stamp, "q": state.q, "dq": state.dq, "driver_q": state.driver_q},
            wish=command, command=command, sent=command,
        )  # fmt: skip
        robot.send(type("Command", (), {"q": q, "gripper": 0.0})())
        robot.advance()
    state = robot.read()
    record.add("episode_end", number=0, ended="time", success=True, fault=None, missed_ticks=0, distance_m=0.0,
               state={"stamp": state.stamp, "q": state.q, "dq": state.dq, "driver_q": state.driver_q})  # fmt: skip
    record.close()
    return folder


def replayed(path):
    replay = Replay(path)
    gap = Gap(replay)
    for frame in replay.frames(replay.lines()):
        gap.add(frame)
    return gap


def test_a_record_of_the_simulation_has_no_gap(tmp_path, spec, robot):
    figures = replayed(simulated_record(tmp_path, spec, robot)).to_json()
    assert figures["periods"] == 41
    assert figures["max_rad"] < 1e-6
    assert figures["tool_max_m"] < 1e-6


def test_the_gap_is_simulated_minus_measured(sine):
    gap = replayed(sine)
    figures = gap.to_json()
    _, measured = gap.joints.curve(0)
    _, simulated = gap.joints.curve(6)
    _, difference = gap.joints.curve(12)
    np.testing.assert_allclose(difference, simulated - measured)
    found = figures["joints"]["shoulder_pan_joint"]
    assert found["rms_rad"] == pytest.approx(np.sqrt(np.nanmean(difference**2)))
    assert found["max_rad"] == pytest.approx(np.nanmax(np.abs(difference)))
    assert figures["periods"] == 2 * 41
    assert 0 < figures["tool_rms_m"] <= figures["tool_max_m"]


def test_an_episode_begins_where_the_arm_stood(sine):
    replay = Replay(sine)
    frames = list(replay.frames(replay.lines()))
    for number in (0, 1):
        first = next(frame for frame in frames if frame.episode == number)
        np.testing.assert_array_equal(first.simulated, first.measured)
    assert [frame.sent is None for frame in frames].count(True) == 2


def test_a_replay_keeps_the_record_s_pace(sine):
    replay, clock, waits = Replay(sine), [0.0], []

    def wait(seconds):
        waits.append(seconds)
        clock[0] += seconds

    frames = list(in_real_time(replay.frames(replay.lines()), lambda: clock[0], wait))
    assert len(waits) == len(frames) == 82
    assert waits[:3] == pytest.approx([0.0, 0.05, 0.05])
    assert clock[0] == pytest.approx(2 * 2.0)


BAD = {
    "a check": ({"mode": "check"}, "is of a check, which sends nothing"),
    "a shadow": ({"mode": "shadow"}, "is of a shadow, which sends nothing"),
    "no cell": ({"cell": None}, "does not say which arm it is of"),
    "an unknown arm": ({"cell": {"robot": {"arm": "ur6x"}}}, "a robot that is unknown here: .*ur6x"),
    "another arm": (
        {"cell": {"robot": {"backend": "ur", "arm": "fr3", "gripper": "franka_hand"}}},
        "lacks|needs the extra",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_replayed_is_refused(write_record, case):
    more, words = BAD[case]
    with pytest.raises(RecordError, match=words):
        replayed(write_record(episodes=1, **more))


def test_an_empty_record_is_refused(tmp_path):
    (tmp_path / "record.jsonl").touch()
    with pytest.raises(RecordError, match="is empty"):
        Replay(tmp_path)


def messages(path):
    """Read an MCAP file with the library's own reader."""
    from mcap.reader import make_reader

    with path.open("rb") as file:
        return [(schema, channel, message) for schema, channel, message in make_reader(file).iter_messages()]


def test_mcap_has_every_period_and_every_line(td3robot, sine, tmp_path):
    pytest.importorskip("mcap")
    out = tmp_path / "record.mcap"
    status, text, err = td3robot("replay", sine, "--mcap", out, "--json")
    assert status == 0, err
    assert json.loads(text)["periods"] == 82
    lines = [json.loads(line) for line in (sine / "record.jsonl").read_text().splitlines()]
    periods = [line for line in lines if line["kind"] == "period"]
    found = {}
    for schema, channel, message in messages(out):
        assert schema.encoding == "jsonschema"
        assert json.loads(schema.data)["type"] == "object"
        assert channel.message_encoding == "json"
        values = json.loads(message.data)
        assert set(json.loads(schema.data)["required"]) <= set(values)
        found.setdefault(channel.topic, []).append((message.log_time, values))
    for topic, part in (("/measured", "state"), ("/wished", "wish"), ("/guarded", "command"), ("/sent", "sent")):
        assert [list(values["position"].values()) for _, values in found[topic]] == [
            line[part]["q"] for line in periods
        ]
    assert len(found["/simulated"]) == 82
    assert found["/measured"][0][1]["position"].keys() == {
        "shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint", "wrist_3_joint",
    }  # fmt: skip
    assert "q.elbow_joint" in found["/policy"][0][1]["observation"]
    assert [values["acceleration"] for _, values in found["/guard"]][:11] == [1, *[0] * 9, 1]
    others = [line for line in lines if line["kind"] != "period"]
    assert [values for _, values in found["/events"]] == others
    assert found["/measured"][0][0] == pytest.approx(1e9 * (1.8e9 + 0.05), abs=1000)


def test_mcap_has_what_foxglove_shows_with_its_own_schemas(td3robot, sine, tmp_path):
    pytest.importorskip("mcap")
    jsonschema = pytest.importorskip("jsonschema")
    out = tmp_path / "record.mcap"
    status, _, err = td3robot("replay", sine, "--mcap", out)
    assert status == 0, err
    found = {}
    for schema, channel, message in messages(out):
        values = json.loads(message.data)
        jsonschema.validate(values, json.loads(schema.data))
        if schema.name.startswith("foxglove."):
            found.setdefault((channel.topic, schema.name), []).append((message.log_time, values))
    assert {name: len(shown) for name, shown in found.items()} == {
        ("/joint_states", "foxglove.JointStates"): 80, ("/joint_commands", "foxglove.JointStates"): 80,
        ("/tool", "foxglove.PoseInFrame"): 80, ("/tf", "foxglove.FrameTransforms"): 80, ("/log", "foxglove.Log"): 8,
    }  # fmt: skip
    replay = Replay(sine)
    period = next(line for line in replay.lines() if line["kind"] == "period")
    at, joints = found["/joint_states", "foxglove.JointStates"][0]
    assert [joint["position"] for joint in joints["joints"]] == period["state"]["q"]
    assert [joint["velocity"] for joint in joints["joints"]] == period["state"]["dq"]
    assert joints["timestamp"]["sec"] * 10**9 + joints["timestamp"]["nsec"] == at
    tool = replay.kinematics.tcp(np.array(period["state"]["q"]))
    _, pose = found["/tool", "foxglove.PoseInFrame"][0]
    assert list(pose["pose"]["position"].values()) == pytest.approx(tool.position.tolist())
    turn = [pose["pose"]["orientation"][axis] for axis in "wxyz"]
    np.testing.assert_allclose(rotation_of(turn), tool.rotation, atol=1e-9)
    _, frames = found["/tf", "foxglove.FrameTransforms"][0]
    assert [each["child_frame_id"] for each in frames["transforms"]] == ["tool", "goal"]
    assert frames["transforms"][1]["translation"] == {"x": 0.1, "y": 0.5, "z": 0.3}


def test_foxglove_gets_no_number_that_is_not_finite():
    shown = foxglove.joint_states(1_500_000_000, ["a", "b"], [1.0, float("nan")], [float("inf"), 2.0])
    assert shown["joints"] == [{"name": "a", "position": 1.0}, {"name": "b", "velocity": 2.0}]
    assert shown["timestamp"] == {"sec": 1, "nsec": 500_000_000}


def test_mcap_never_overwrites_unless_it_is_told_to(td3robot, sine, tmp_path):
    pytest.importorskip("mcap")
    out = tmp_path / "mine.mcap"
    out.write_text("mine")
    status, _, err = td3robot("replay", sine, "--mcap", out)
    assert status == 2
    assert f"{out} exists; choose another name, or give --force" in err
    assert out.read_text() == "mine"
    assert td3robot("replay", sine, "--mcap", out, "--force")[0] == 0
    assert messages(out)


def test_an_export_that_fails_leaves_no_file(td3robot, sine, tmp_path):
    pytest.importorskip("mcap")
    path = sine / "record.jsonl"
    lines = path.read_text().splitlines()
    broken = json.loads(lines[20])
    del broken["action"]
    path.write_text("\n".join([*lines[:20], json.dumps(broken), *lines[21:]]) + "\n")
    before = sorted(tmp_path.rglob("*"))
    status, _, err = td3robot("replay", sine, "--mcap", tmp_path / "x.mcap")
    assert status == 2
    assert "line 21 of the record, 'period', lacks what it should have ('action')" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_without_the_package_the_extra_is_named(td3robot, sine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcap.writer", None)
    status, _, err = td3robot("replay", sine, "--mcap", tmp_path / "x.mcap")
    assert status == 2
    assert "pip install 'td3robot[mcap]'" in err
    assert not (sine / "replay.html").exists()
