import json

import numpy as np
import pytest

from td3robot import seeding
from td3robot.build import make_robot_env
from td3robot.cli.deployment import _show_check
from td3robot.deploy.episode import ArmFigures, ArmPlayer
from td3robot.deploy.report import summarize
from td3robot.envs.playing import evaluate
from td3robot.report.figures import ROWS
from td3robot.statistics import percentiles


def test_the_figures_of_a_player_are_those_of_an_evaluation(loaded):
    environment = make_robot_env(loaded.environment)
    wanted = evaluate(environment, loaded.policy.act, 3, seed=7)
    found, player = [], ArmPlayer(environment, loaded.policy.act)
    for number in range(3):
        player.begin(number, seeding.integer(7, seeding.Stream.EVALUATION_EPISODES, number))
        while not player.step():
            pass
        found.append(player.figures)
    report = summarize(found)
    for name in ("success_rate", "episodes", "max_tcp_speed_m_s", "max_joint_speed_rad_s", "guard_interventions"):
        assert report[name] == pytest.approx(getattr(wanted, name)), name
    assert report["mean_return"] == pytest.approx(wanted.mean_return)
    assert report["mean_final_distance_m"] == pytest.approx(wanted.mean_final_distance_m)
    assert report["ended"] == {"time": 3}
    assert report["missed_ticks"] == 0
    json.dumps(report, allow_nan=False)


def test_figures_by_hand():
    one = ArmFigures(0, 1, steps=4, success=True, distance_m=0.002, total_reward=3.0, ended="time", missed_ticks=1)
    one.lead_rad += [0.0, 0.3, 0.4, 0.0]
    one.decide_s += [0.001, 0.002, 0.003]
    one.reasons.update({"lead": 2, "any": 2})
    two = ArmFigures(1, 2, steps=4, ended="fault", fault="it fell")
    report = summarize([one, two])
    assert report["success_rate"] == 0.5
    assert report["missed_share"] == 1 / 8
    assert report["guard_interventions"] == {"any": 0.25, "lead": 0.25}
    assert report["tracking"] == pytest.approx({"rms_rad": 0.25, "max_rad": 0.4, "at_end_rad": 0.0})
    assert report["decide_ms"] == pytest.approx({"p50": 2.0, "p99": 2.98, "max": 3.0})
    assert report["faults"] == ["it fell"]
    assert report["ended"] == {"time": 1, "fault": 1}


def test_nothing_gives_none_and_no_nan():
    report = summarize([])
    assert report["success_rate"] is None
    assert report["tracking"] is None
    assert percentiles([]) is None
    json.dumps(report, allow_nan=False)
    assert np.isfinite(summarize([ArmFigures(0, 0)])["mean_return"])


def test_a_terminal_has_words_for_how_episodes_ended():
    (row,) = [row for row in ROWS if row.title == "Episodes ended by"]
    assert row.text({"ended": {"time": 5, "fault": 1}}) == "the time limit (5), a fault (1)"


def test_a_terminal_has_words_for_measured_times(capsys):
    times = {"p50": 8.0, "p99": 8.3, "max": 9.12, "counts": [1]}
    _show_check({"findings": [], "histograms": {"arm_state_period_ms": times}, "edges_ms": [8.0], "go": True})
    said = capsys.readouterr().err
    assert "time between two states: median 8.0 ms, 99 % within 8.3 ms, longest 9.1 ms" in said
