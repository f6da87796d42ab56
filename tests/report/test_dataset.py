"""Datasets: what a record says, frame by frame; LeRobot's own loader opens what is written."""

import errno
import json
import os
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from td3robot import catalog
from td3robot.build import make_robot_env
from td3robot.config import load_config
from td3robot.deploy.recorded import RecordedPlayer, recorded_evaluation
from td3robot.envs.playing import play_episodes
from td3robot.errors import EnvironmentFaultError
from td3robot.records import Record, RecordError, read_record
from td3robot.report.dataset import read_dataset
from td3robot.report.lerobot import features, statistics, write_dataset
from td3robot.report.replay import Gap, Replay

REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"


def edited(folder, change):
    """Rewrite a record line by line; a change returns the line, or None to drop it."""
    path = folder / "record.jsonl"
    lines = [json.dumps(line) for old in read_record(path) if (line := change(old)) is not None]
    path.write_text("\n".join(lines) + "\n")
    return folder


def test_a_frame_is_a_control_period_with_what_followed_from_it(write_record):
    folder = write_record(episodes=2, periods=5, failing=(1,))
    dataset = read_dataset([folder])
    periods = [line for line in read_record(folder / "record.jsonl") if line["kind"] == "period"]
    assert (len(dataset.episodes), dataset.frames, dataset.left_out) == (2, 10, 0)
    joined = {key: np.concatenate([each[key] for each in dataset.episodes]) for key in dataset.episodes[0]}
    np.testing.assert_allclose(joined["observation.state"], [line["observation"] for line in periods])
    np.testing.assert_allclose(joined["action"], [line["action"] for line in periods], rtol=1e-6)
    np.testing.assert_allclose(joined["measured.position"], [line["state"]["q"] for line in periods], rtol=1e-6)
    np.testing.assert_allclose(joined["sent.position"][:, :6], [line["sent"]["q"] for line in periods], rtol=1e-6)
    np.testing.assert_allclose(joined["next.reward"], 0.5)
    np.testing.assert_allclose(joined["measured.time"], [0.05 * (frame % 5) for frame in range(10)], atol=1e-9)
    assert (
        joined["next.done"].tolist() == joined["next.truncated"].tolist() == [False] * 4 + [True] + [False] * 4 + [True]
    )
    assert joined["next.success"].nonzero()[0].tolist() == [4]
    assert dataset.about.task == "reach a point"
    assert dataset.about.rate_hz == 20.0


def test_components_have_the_names_of_the_contract(write_record):
    described = features(read_dataset([write_record(episodes=1, periods=2)]))
    assert "q.elbow_joint" in described["observation.state"]["names"]
    assert described["sent.position"]["names"][-2:] == ["wrist_3_joint", "gripper"]
    for feature in described.values():
        assert feature["names"] is None or feature["shape"] == [len(feature["names"])]


def test_what_sent_nothing_or_was_stopped_is_left_out(write_record):
    def change(line):
        if line["kind"] == "episode" and line["number"] == 0:
            return line | {"mode": "shadow"}
        if line["kind"] == "episode_end" and line["number"] == 2:
            return {"kind": "stop", "at": line["at"], "ended": "operator", "fault": None}
        return line

    dataset = read_dataset([edited(write_record(episodes=3, periods=4), change)])
    assert (len(dataset.episodes), dataset.left_out) == (1, 1)


def test_records_become_one_dataset(write_record):
    folders = [write_record(f"20260101-12000{number}-000000-run-reach", episodes=2, periods=3) for number in range(2)]
    assert read_dataset(folders).frames == 12


def without_rewards(line):
    return {key: value for key, value in line.items() if key != "total_reward"}


def slower(line):
    if line["kind"] != "session":
        return line
    robot = line["contract"]["robot"] | {"control_rate_hz": 10.0}
    return line | {"contract": line["contract"] | {"robot": robot}}


def only_stops(line):
    return None if line["kind"] == "episode_end" else line


def misshapen(line):
    return line | {"action": [0.1, 0.2]} if line["kind"] == "period" else line


def anonymous(line):
    return line | {"contract": {}} if line["kind"] == "session" else line


REFUSED = {
    "without rewards": (without_rewards, "differs from those before it in next.reward; export it on its own"),
    "at another rate": (slower, "has the control rate 10 Hz, and those before it 20 Hz"),
    "of stops": (only_stops, None),
    "with other actions": (misshapen, "line .*lacks what it should have .action has 2 numbers"),
    "of an unknown robot": (anonymous, "the first line of .* lacks what a dataset needs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_records_that_do_not_go_together_are_refused(write_record, case):
    change, words = REFUSED[case]
    first = write_record("20260101-120000-000000-run-first", episodes=1, periods=3)
    other = edited(write_record("20260101-120001-000000-run-other", episodes=1, periods=3), change)
    if words is None:
        assert read_dataset([first, other]).left_out == 1
        with pytest.raises(RecordError, match=r"no episode in .* ended by itself"):
            read_dataset([other])
        return
    with pytest.raises(RecordError, match=words):
        read_dataset([first, other])


def test_older_records_have_no_reward(write_record):
    dataset = read_dataset([edited(write_record(episodes=1, periods=3), without_rewards)])
    assert "next.reward" not in dataset.episodes[0]


def test_statistics_are_of_each_component():
    found = statistics(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]))
    assert (found["min"], found["max"], found["mean"], found["count"]) == ([0.0, 1.0], [4.0, 1.0], [2.0, 1.0], [3])
    assert found["q50"] == [2.0, 1.0]
    assert found["std"] == pytest.approx([np.sqrt(8 / 3), 0.0])


def test_an_evaluation_is_recorded_as_a_session_is(tmp_path):
    environment = make_robot_env(load_config(REACH).environment.model_copy(update={"episode_s": 1.0}))
    rng = np.random.default_rng(0)
    with closing(Record(tmp_path / "record.jsonl")) as record:
        robot = {"backend": "mujoco", "arm": "ur5e", "gripper": "robotiq_2f85", "control_rate_hz": 20.0}
        terms = dict(environment.contract().terms)
        record.begin("eval", at=0.0, checkpoint="policy", contract=terms, cell={"robot": robot})
        player = RecordedPlayer(environment, lambda seen: rng.uniform(-1, 1, 3).astype(np.float32), record, "a title")
        played = play_episodes(player, 2, seed=5)
    environment.close()
    dataset = read_dataset([tmp_path])
    assert [columns["next.reward"].sum() for columns in dataset.episodes] == pytest.approx(
        [figures.total_reward for figures in played], rel=1e-5
    )
    times = [line["at"] for line in read_record(tmp_path / "record.jsonl")]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(2.0)
    replay = Replay(tmp_path)
    gap = Gap(replay)
    for frame in replay.frames(replay.lines()):
        gap.add(frame)
    assert gap.to_json()["max_rad"] < 1e-6


def test_without_the_package_the_extra_is_named(td3robot, write_record, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = td3robot("dataset", write_record(episodes=1), "--out", tmp_path / "set")
    assert status == 2
    assert "pip install 'td3robot[lerobot]'" in err
    assert not (tmp_path / "set").exists()


@pytest.mark.thorough
def test_a_dataset_never_replaces_a_folder(td3robot, write_record, tmp_path):
    pytest.importorskip("pyarrow")
    status, _, err = td3robot("dataset", write_record(episodes=1), "--out", tmp_path)
    assert status == 2
    assert f"{tmp_path} exists; choose another folder" in err


@pytest.mark.thorough
def test_lerobot_opens_a_dataset(td3robot, write_record, tmp_path):
    """With LeRobot's own loader, from a local folder."""
    pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    folders = [write_record(f"20260101-12000{number}-000000-run-reach", episodes=2, periods=7) for number in range(2)]
    status, out, err = td3robot("dataset", *folders, "--out", tmp_path / "set", "--json")
    assert status == 0, err
    assert json.loads(out) == {"dataset": str(tmp_path / "set"), "episodes": 4, "frames": 28, "left_out": 0}
    opened = datasets.LeRobotDataset("td3robot/records", root=tmp_path / "set")
    assert (opened.num_episodes, opened.num_frames, opened.fps) == (4, 28, 20)
    wanted = read_dataset(folders)
    frame = opened[13]  # the last of the second episode
    for key, values in wanted.episodes[1].items():
        np.testing.assert_allclose(np.asarray(frame[key]), values[6], rtol=1e-6, err_msg=key)
    assert (frame["task"], frame["episode_index"].item(), frame["frame_index"].item()) == ("reach a point", 1, 6)
    assert frame["timestamp"].item() == pytest.approx(0.3)
    actions = np.concatenate([columns["action"] for columns in wanted.episodes])
    np.testing.assert_allclose(opened.meta.stats["action"]["mean"], actions.mean(axis=0), rtol=1e-5)
    window = datasets.LeRobotDataset(
        "td3robot/records", root=tmp_path / "set", episodes=[2], delta_timestamps={"action": [0.0, 0.05]}
    )
    assert window[0]["action"].shape == (2, 3)
    write_dataset(wanted, tmp_path / "again")
    assert json.loads((tmp_path / "again/meta/info.json").read_text())["total_tasks"] == 1


def test_eval_records_what_it_evaluates(td3robot, tmp_path):
    status, out, err = td3robot("eval", "ur5e_reach", "--episodes", 1, "--records", tmp_path, "--json")
    assert status == 0, err
    (folder,) = tmp_path.iterdir()
    assert f"record: {folder / 'record.jsonl'}" in err
    report = json.loads((folder / "report.json").read_text())
    assert (report["mode"], report["figures"]["mean_return"]) == ("eval", json.loads(out)["mean_return"])
    assert read_dataset([folder]).frames == 100
    status, _, err = td3robot("report", folder)
    assert status == 0, err
    assert "Evaluation of ur5e_reach" in (folder / "report.html").read_text()


def no_room(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_evaluation_whose_record_ends_says_nothing_of_an_arm(tmp_path, monkeypatch):
    config = load_config(REACH).environment
    environment, path = make_robot_env(config), catalog.policy(Path("ur5e_reach"))
    act = lambda seen: np.zeros(3, np.float32)  # noqa: E731
    with (
        pytest.raises(
            RecordError, match=r"^the evaluation ended early: the record .* cannot be written any more"
        ) as said,
        recorded_evaluation(tmp_path, path, "one", 1.0, config, environment, act) as player,
        monkeypatch.context() as full,
    ):
        full.setattr("os.fstat", no_room)
        player.begin(0, 1)
    assert "arm" not in str(said.value)
    environment.close()


def test_a_task_that_raises_is_named_while_it_is_recorded(tmp_path, monkeypatch):
    environment = make_robot_env(load_config(REACH).environment)
    with closing(Record(tmp_path / "record.jsonl")) as record:
        player = RecordedPlayer(environment, lambda seen: np.zeros(3, np.float32), record, "my task")
        player.begin(0, 1)
        monkeypatch.setattr(environment, "step", lambda action: {}["cube"])
        with pytest.raises(EnvironmentFaultError, match="the environment 'my task' raised KeyError: 'cube'"):
            player.step()
    environment.close()


def test_only_a_robot_s_evaluation_can_be_recorded(td3robot, made, tmp_path):
    status, _, err = td3robot("eval", made, "--episodes", 1, "--records", tmp_path / "records")
    assert status == 2
    assert "--records is for robots, and this policy was trained on Pendulum-v1; leave it out" in err
    assert not (tmp_path / "records").exists()
