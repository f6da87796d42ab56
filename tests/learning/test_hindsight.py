"""Hindsight goals: what the paper and Stable-Baselines3 would store is stored, and a resumed run is the same."""

from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from quiet import Quiet

from td3robot.build import make_environment
from td3robot.config import load_config
from td3robot.envs.goals import GoalColumns
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.learning.collector import Collector
from td3robot.learning.environments import LocalEnvironments
from td3robot.learning.hindsight import Hindsight, PastStep
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import newest
from td3robot.policy.validation import require_whole

EPISODE, GOALS, GAMMA, NEAR = 7, 4, 0.9, 0.3


class Walk(gymnasium.Env):
    """A point walks in a plane to a goal; the reward is -1 until it is near, and 0 there."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        place = Box(-10.0, 10.0, (2,), np.float64)
        self.observation_space = Dict({"observation": place, "desired_goal": place, "achieved_goal": place})
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal, self.steps = np.zeros(2), self.np_random.uniform(-3.0, 3.0, 2), 0
        return self._observed(), {}

    def step(self, action):
        self.place, self.steps = self.place + 0.5 * action, self.steps + 1
        reward = self.compute_reward(self.place, self.goal, {})
        return self._observed(), float(reward), False, self.steps == EPISODE, {"is_success": bool(reward == 0.0)}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > NEAR).astype(np.float32)

    def _observed(self):
        return {"observation": -self.place, "desired_goal": self.goal.copy(), "achieved_goal": self.place.copy()}


class NaNWalk(Walk):
    """Its reward of any goal but the episode's own is not a number."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        own = np.allclose(desired_goal, self.goal)
        return super().compute_reward(achieved_goal, desired_goal, info) if own else np.nan


gymnasium.register("Walk-v0", Walk)
gymnasium.register("NaNWalk-v0", NaNWalk)
COLUMNS = GoalColumns(slice(0, 2), slice(2, 4))  # sorted by name: achieved_goal, desired_goal, observation


def configuration(*more):
    return load_config(
        Path("gym_pendulum"),
        [
            "environment.id=Walk-v0", "agent.hidden=[8,8]", "agent.batch_size=16", "agent.replay_capacity=500",
            f"agent.hindsight_goals={GOALS}", "training.steps=60", "training.random_steps=20", "training.threads=1",
            "training.environments=2", "training.overlap=false", "training.learner=reference",
            "training.evaluate_every=60", "training.evaluation_episodes=1", "training.checkpoint_every=20",
            "training.log_every=20", *more,
        ],
    )  # fmt: skip


def collected(steps, environment="Walk-v0", seed=3):
    """Give the transitions of some steps of two environments."""
    config = configuration(f"environment.id={environment}").environment
    environments = LocalEnvironments([make_environment(config) for _ in range(2)])
    collector, rng, found = Collector(environments, seed, 1, GAMMA, GOALS), np.random.default_rng(0), []
    for _ in range(steps):
        collector.start(rng.uniform(-1, 1, (2, 2)).astype(np.float32))
        found += collector.advance(collector.finish()).transitions
    return found


def test_an_episode_is_stored_at_its_end_with_its_own_goal_and_with_others():
    assert collected(EPISODE - 1) == []
    found = collected(EPISODE)
    assert len(found) == 2 * EPISODE * (1 + GOALS)
    own = found[:EPISODE]
    assert len({tuple(each.observation[COLUMNS.desired]) for each in own}) == 1
    for before, after in pairwise(own):
        np.testing.assert_array_equal(before.next_observation, after.observation)


def test_other_goals_are_what_was_achieved_then_or_later_and_rewards_are_the_environments_own():
    found, walk = collected(EPISODE), Walk()
    own, others = found[:EPISODE], found[EPISODE : EPISODE * (1 + GOALS)]
    reached = [each.next_observation[COLUMNS.achieved] for each in own]
    for number, each in enumerate(others):
        step = number // GOALS
        goal = each.observation[COLUMNS.desired]
        assert any((goal == place).all() for place in reached[step:])
        np.testing.assert_array_equal(each.next_observation[COLUMNS.desired], goal)
        for name in ("observation", "next_observation"):
            mine, theirs = np.delete(getattr(each, name), [2, 3]), np.delete(getattr(own[step], name), [2, 3])
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(each.action, own[step].action)
        assert each.reward == walk.compute_reward(each.next_observation[COLUMNS.achieved], goal, {})
        assert (each.terminated, each.discount) == (False, GAMMA)
    assert {each.reward for each in others} == {-1.0, 0.0}


def test_goals_are_drawn_as_stable_baselines3_draws_them():
    """Its buffer draws when it samples, this one when it stores: the same shares, goals and rewards."""
    sb3 = pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install td3robot[bench]")
    walk, rng = Walk(), np.random.default_rng(0)
    observation, _ = walk.reset(seed=1)
    vector = sb3.common.vec_env.DummyVecEnv([lambda: walk])
    theirs = sb3.HerReplayBuffer(100, walk.observation_space, walk.action_space, vector, n_sampled_goal=GOALS)
    steps, names = [], ("achieved_goal", "desired_goal", "observation")
    for _ in range(EPISODE):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        following, reward, _, truncated, info = walk.step(action)
        batched = [{name: value[None] for name, value in each.items()} for each in (observation, following)]
        info |= {"TimeLimit.truncated": truncated}
        theirs.add(*batched, action[None], np.array([reward]), np.array([truncated]), [info])
        flat = [np.concatenate([each[name] for name in names]).astype(np.float32) for each in (observation, following)]
        steps.append(PastStep(flat[0], action, reward, flat[1], False))
        observation = following
    hindsight = Hindsight(COLUMNS, GOALS, GAMMA)
    mine = [
        each for _ in range(400) for each in hindsight.transitions(
            steps, rng, lambda achieved, desired: walk.compute_reward(achieved, desired, {}).astype(np.float64)
        )
    ]  # fmt: skip
    np.random.seed(0)  # noqa: NPY002  # theirs draws from it
    batch = theirs.sample(len(mine))
    own_goal = steps[0].observation[COLUMNS.desired]
    goals = [np.array([each.observation[COLUMNS.desired] for each in mine]), batch.observations["desired_goal"].numpy()]
    shares = [np.isclose(each, own_goal, atol=1e-5).all(1).mean() for each in goals]
    assert shares[0] == pytest.approx(1 / (1 + GOALS)) and shares[1] == pytest.approx(shares[0], abs=0.01)
    rewards = [np.mean([each.reward for each in mine]), float(batch.rewards.mean())]
    assert rewards[0] == pytest.approx(rewards[1], abs=0.02)
    for place in (step.next_observation[COLUMNS.achieved] for step in steps):
        counts = [np.isclose(each, place, atol=1e-5).all(1).mean() for each in goals]
        assert counts[0] == pytest.approx(counts[1], abs=0.02)


def trained(config, run, resumed=False):
    trainer = make_trainer(config, run, Quiet())
    if resumed:
        trainer.resume(newest(run))
    trainer.train()
    trainer.close()
    return newest(run)


def test_a_resumed_run_is_the_run_that_would_have_been(tmp_path):
    """At the stop, an episode is in progress: its steps are in no replay buffer."""
    saved = trained(configuration(), tmp_path / "straight")
    trained(configuration("training.steps=40"), tmp_path / "resumed")
    other = trained(configuration(), tmp_path / "resumed", resumed=True)
    require_whole(saved, saved.config())
    assert len(saved.arrays("replay")["rows"]) > saved.document("counters")["step"]
    for name in ("actor", "Q1", "replay", "normalizer", "episodes"):
        for key, value in saved.arrays(name).items():
            np.testing.assert_array_equal(other.arrays(name)[key], value)


def test_an_environment_without_goals_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs an environment whose observation is a Dict with achieved_goal"):
        make_trainer(configuration("environment.id=Pendulum-v1"), tmp_path, Quiet())


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("ur5e_reach_quick", [], "the tasks of arms reward each step and do without"),
        ("gym_pendulum", ["agent.n_step=3"], "agent.n_step 3 sums several"),
    ],
)
def test_what_does_not_go_with_it_is_refused(name, more, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(Path(name), ["agent.hindsight_goals=4", *more])


def test_a_reward_that_is_not_finite_is_the_environments_fault():
    with pytest.raises(EnvironmentFaultError, match="compute_reward of the environment 'NaNWalk-v0' returned"):
        collected(EPISODE, "NaNWalk-v0")
