"""Playing episodes: the figures of each and of all together, against values worked out by hand."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from td3robot import seeding
from td3robot.cli.evaluation import evaluation_lines
from td3robot.envs.playing import EpisodeFigures, Player, evaluate, play_episodes, summarize
from td3robot.errors import EnvironmentFaultError
from td3robot.format import NONE, failures
from td3robot.statistics import wilson_interval
from td3robot.tasks.interface import Failure


class Scripted(gymnasium.Env):
    """Episode n has n + 2 steps of reward n; every second one succeeds."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, reports: bool) -> None:
        self.reports, self.episode, self.seeds = reports, -1, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count == self.episode + 2
        info = {}
        if self.reports:
            info = {
                "success": over and self.episode % 2 == 0,
                "distance_m": 0.1 * self.episode / self.count,
                "tcp_speed_m_s": 0.1 * self.count,
                "joint_speed_rad_s": 1.0 + 0.1 * self.count,
                "interventions": ("speed", "workspace") if self.count == 1 else (),
            }
        return np.full(1, self.count, np.float32), float(self.episode), over and self.episode == 0, over, info


def act(observation):
    return np.zeros(1, np.float32)


def test_figures_of_scripted_episodes():
    figures = evaluate(Scripted(reports=True), act, episodes=4, seed=1)
    steps = 2 + 3 + 4 + 5
    assert figures.success_rate == 0.5
    assert figures.success_ci95 == wilson_interval(2, 4)
    assert figures.episodes == 4
    assert figures.mean_return == pytest.approx((0 * 2 + 1 * 3 + 2 * 4 + 3 * 5) / 4)
    assert figures.mean_steps == pytest.approx(steps / 4)
    assert figures.mean_final_distance_m == pytest.approx(0.1 * (0 / 2 + 1 / 3 + 2 / 4 + 3 / 5) / 4)
    assert figures.max_tcp_speed_m_s == pytest.approx(0.5)
    assert figures.max_joint_speed_rad_s == pytest.approx(1.5)
    assert figures.guard_interventions == pytest.approx({"any": 4 / steps, "speed": 4 / steps, "workspace": 4 / steps})


def test_what_an_environment_does_not_report_is_none():
    figures = evaluate(Scripted(reports=False), act, episodes=2, seed=1)
    assert figures.mean_return == pytest.approx(1.5)
    for name, value in figures.to_json().items():
        assert (value is None) == (name not in ("episodes", "mean_return", "mean_return_ci95", "mean_steps")), name


def test_failed_episodes_are_sorted_by_why():
    ends = [("time", Failure("away", 0.02)), ("operator", None), ("time", Failure("away", 0.04)),
            ("time", Failure("too_fast")), ("time", None)]  # fmt: skip
    failed = [EpisodeFigures(number, 0, 1, False, ended=ended, failure=why) for number, (ended, why) in enumerate(ends)]
    figures = summarize([*failed, EpisodeFigures(9, 0, 1, True, ended="time")])
    assert figures.failures == {
        "away": {"episodes": 2, "distance_m": pytest.approx(0.03)},
        "operator": {"episodes": 1, "distance_m": None},
        "too_fast": {"episodes": 1, "distance_m": None},
    }
    words = "2 away from the goal (median 30 mm), 1 stopped by the operator, 1 moving too fast"
    assert failures(figures.to_json()) == words
    assert evaluation_lines(figures.to_json(), "reached")[1] == f"failed: {words}"
    assert failures(summarize([EpisodeFigures(0, 0, 1, True, ended="time")]).to_json()) == NONE


def test_the_figures_are_json():
    figures = evaluate(Scripted(reports=True), act, episodes=2, seed=1).to_json()
    lists = {name: list(figures[name]) for name in ("success_ci95", "mean_return_ci95")}
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures | lists


def test_the_same_seed_plays_the_same_episodes_and_each_is_another():
    environments = [Scripted(True) for _ in range(3)]
    for environment, seed in zip(environments, (1, 1, 2), strict=True):
        evaluate(environment, act, episodes=3, seed=seed)
    first, same, other = (environment.seeds for environment in environments)
    assert first == same
    assert len({*first, *other}) == 6


def test_the_policy_sees_every_observation_but_the_last():
    seen = []

    def look(observation):
        seen.append(observation.item())
        return act(observation)

    evaluate(Scripted(True), look, episodes=2, seed=0)
    assert seen == [0, 1, 0, 1, 2]


def test_the_recorder_is_called_after_every_reset_and_step():
    frames = []
    evaluate(Scripted(True), act, episodes=1, seed=0, on_frame=lambda environment: frames.append(environment.count))
    assert frames == [0, 1, 2]


def test_success_outranks_return_where_it_is_more_than_chance():
    figures = evaluate(Scripted(True), act, episodes=2, seed=0)

    def played(successes, mean_return, spread=0.5):
        interval = wilson_interval(successes, 50)
        rated = replace(figures, success_rate=successes / 50, success_ci95=interval)
        returns = (mean_return - spread, mean_return + spread)
        return replace(rated, mean_return=mean_return, mean_return_ci95=returns)

    assert played(50, -100.0).beats(played(40, 0.0))
    assert not played(40, 0.0).beats(played(50, -100.0))
    assert played(49, 1.0).beats(played(50, 0.0))
    assert not played(50, 0.0).beats(played(49, 1.0))
    assert not played(50, 1.0, 2.0).beats(played(50, 0.0)), "the lower return is within chance of the higher one"
    assert not played(50, 1.0).beats(played(50, 0.0, 2.0))
    earlier = replace(played(50, 1.0), mean_return_ci95=None)
    assert earlier.beats(replace(played(50, 0.9), mean_return_ci95=None)), "without intervals, returns are exact"


def test_without_success_return_decides():
    figures = replace(evaluate(Scripted(True), act, episodes=2, seed=0), success_rate=None, success_ci95=None)
    higher = replace(figures, mean_return=figures.mean_return + 1e-9)
    assert higher.beats(figures)
    assert not figures.beats(higher)
    assert not figures.beats(figures)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reward_that_is_not_finite_is_a_fault(value):
    environment = Scripted(True)
    step = environment.step
    environment.step = lambda action: (step(action)[0], value, True, False, {})
    with pytest.raises(EnvironmentFaultError):
        evaluate(environment, act, episodes=2, seed=0)


def test_each_episode_has_its_figures():
    played = play_episodes(Player(Scripted(True), act), episodes=2, seed=7)
    first, second = played
    assert first == EpisodeFigures(
        number=0, seed=seeding.integer(7, seeding.Stream.EVALUATION_EPISODES, 0), steps=2, success=True, distance_m=0.0,
        total_reward=0.0, reasons={"speed": 1, "workspace": 1, "any": 1}, tcp_speed_m_s=0.2, joint_speed_rad_s=1.2,
        ended="time",
    )  # fmt: skip
    assert (second.number, second.steps, second.success, second.total_reward) == (1, 3, False, 3.0)
    assert summarize(played) == evaluate(Scripted(True), act, episodes=2, seed=7)


def test_an_episode_that_was_stopped_counts_as_a_failure():
    done = EpisodeFigures(0, 1, steps=3, success=True, total_reward=2.0, distance_m=0.1)
    stopped = EpisodeFigures(1, 2, steps=1, ended="fault", fault="it fell")
    figures = summarize([done, stopped])
    assert figures.success_rate == 0.5
    assert (figures.mean_steps, figures.mean_return, figures.mean_final_distance_m) == (2.0, 1.0, 0.1)
    assert figures.guard_interventions is None


@pytest.mark.parametrize(
    ("terminated", "info", "ended"),
    [(False, {}, "time"), (True, {}, "goal"), (False, {"fault": "objects lost"}, "fault")],
)
def test_an_episode_tells_how_it_ended(terminated, info, ended):
    environment = Scripted(False)
    environment.step = lambda action: (np.zeros(1, np.float32), 0.0, terminated, not terminated, info)
    (figures,) = play_episodes(Player(environment, act), episodes=1, seed=0)
    assert (figures.ended, figures.fault) == (ended, info.get("fault"))
