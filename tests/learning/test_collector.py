"""Collecting: n-step sums worked out by hand, faults named, and episodes played again to where they were."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from td3robot.errors import EnvironmentFaultError
from td3robot.layout import Field, Layout
from td3robot.learning.collector import CollectedSteps, Collector
from td3robot.learning.environments import LocalEnvironments
from td3robot.learning.metrics import Window
from td3robot.learning.replay import ReplayBuffer

GAMMA = 0.5


class Scripted(gymnasium.Env):
    """Observe the number of steps; reward 1, 10, 100 ...; end after ``length`` steps."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int, terminates: bool) -> None:
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action):
        self.count += 1
        over = self.count == self.length
        info = {"success": self.terminates, "reward_terms": {"a": 2.0}, "interventions": ("speed",)}
        terminated, truncated = over and self.terminates, over and not self.terminates
        return np.full(1, self.count), 10.0 ** (self.count - 1), terminated, truncated, info


class Drifting(gymnasium.Env):
    """A random walk pushed by the actions, from a start drawn by the seed."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    deterministic = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed if self.deterministic else None)
        self.position = self.np_random.normal(size=2)
        return self.position.copy(), {}

    def step(self, action):
        self.position += action + self.np_random.normal(size=2)
        return self.position.copy(), float(self.position[0]), False, bool(abs(self.position[0]) > 20), {}


class Unrepeatable(Drifting):
    deterministic = False


def collector_of(environments: list[gymnasium.Env], n_step: int = 1) -> Collector:
    return Collector(LocalEnvironments(environments), seed=0, n_step=n_step, gamma=GAMMA)


def step(collector: Collector, actions: np.ndarray, replay: ReplayBuffer) -> CollectedSteps:
    collector.start(actions)
    taken = collector.advance(collector.finish())
    replay.add(taken.transitions)
    return taken


def collect(environments: list[gymnasium.Env], n_step: int, steps: int, capacity: int = 100):
    size = environments[0].observation_space.shape[0]
    collector = collector_of(environments, n_step)
    replay = ReplayBuffer(capacity, size, size)
    actions = np.full((len(environments), size), 0.25, np.float32)
    return collector, replay, [step(collector, actions, replay) for _ in range(steps)]


def rows(replay: ReplayBuffer) -> list[list[float]]:
    """Give (observation, action, reward, next observation, terminated, discount) of each transition."""
    return replay.state()[0]["rows"].tolist()


@pytest.mark.parametrize("terminates", [True, False])
def test_one_step_transitions(terminates):
    _, replay, _ = collect([Scripted(3, terminates)], n_step=1, steps=4)
    end = float(terminates)
    assert rows(replay) == [
        [0, 0.25, 1, 1, 0, 0.5],
        [1, 0.25, 10, 2, 0, 0.5],
        [2, 0.25, 100, 3, end, 0.5],
        [0, 0.25, 1, 1, 0, 0.5],
    ]


@pytest.mark.parametrize("terminates", [True, False])
def test_three_step_sums_shrink_towards_the_end_of_the_episode(terminates):
    _, replay, _ = collect([Scripted(4, terminates)], n_step=3, steps=4)
    end = float(terminates)
    assert rows(replay) == [
        [0, 0.25, 1 + 0.5 * 10 + 0.25 * 100, 3, 0, 0.125],
        [1, 0.25, 10 + 0.5 * 100 + 0.25 * 1000, 4, end, 0.125],
        [2, 0.25, 100 + 0.5 * 1000, 4, end, 0.25],
        [3, 0.25, 1000, 4, end, 0.5],
    ]


def test_an_episode_shorter_than_n_gives_its_whole_rest():
    _, replay, _ = collect([Scripted(2, True)], n_step=3, steps=3)
    assert rows(replay) == [[0, 0.25, 1 + 0.5 * 10, 2, 1, 0.25], [1, 0.25, 10, 2, 1, 0.5]]


def test_sums_never_reach_across_episodes_or_environments():
    _, replay, _ = collect([Scripted(2, True), Scripted(3, False)], n_step=2, steps=6)
    starts = [(row[0], row[3]) for row in rows(replay)]
    assert all(0 < after - before <= 2 for before, after in starts)
    assert len(starts) == 12


def test_finished_episodes_and_the_window_tell_their_figures():
    _, _, taken = collect([Scripted(3, True), Scripted(2, False)], n_step=1, steps=3)
    window = Window()
    for each in taken:
        window.add(each)
    assert [episode for each in taken for episode in each.finished] == [
        {"return": 11.0, "steps": 2, "success": False},
        {"return": 111.0, "steps": 3, "success": True},
    ]
    assert window.state()["steps"] == [6]
    assert window.figures() == {
        "episode/return": 61.0, "episode/steps": 2.5, "episode/success": 0.5,
        "action/mean_abs": 0.25, "action/saturated": 0.0, "reward/a": 2.0, "guard/speed": 1.0,
    }  # fmt: skip


def test_every_episode_of_every_environment_starts_from_a_seed_of_its_own():
    collector, _, _ = collect([Drifting(), Drifting()], n_step=1, steps=1)
    again, _, _ = collect([Drifting(), Drifting()], n_step=1, steps=1)
    assert not np.array_equal(*collector.observations)
    np.testing.assert_array_equal(collector.observations, again.observations)


class Faulty(Scripted):
    """Return nonsense at the third step."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    observation_layout = Layout([Field("speed", ("x", "y"), "m/s", "arm")])

    def __init__(self, observation: float, reward: float) -> None:
        super().__init__(10, False)
        self.observation, self.reward = observation, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        _, _, terminated, truncated, info = super().step(action)
        speed, reward = (self.observation, self.reward) if self.count == 3 else (0.0, 0.0)
        return np.array([0.0, speed]), reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("observation", "reward", "words"),
    [
        (np.nan, 0.0, r"observation speed\.y is nan in environment 1, episode 0, step 2"),
        (-np.inf, 0.0, r"observation speed\.y is -inf in environment 1, episode 0, step 2"),
        (0.0, np.nan, "the reward is nan in environment 1, episode 0, step 2"),
        (0.0, np.inf, "the reward is inf in environment 1, episode 0, step 2"),
    ],
)
def test_a_value_that_is_not_finite_is_named_and_not_remembered(observation, reward, words):
    environments = [Faulty(0.0, 0.0), Faulty(observation, reward)]
    collector, replay, _ = collect(environments, n_step=1, steps=2)
    with pytest.raises(EnvironmentFaultError, match=words):
        step(collector, np.zeros((2, 2), np.float32), replay)
    assert replay.size == 4


def test_without_a_layout_the_number_is_named():
    class Nameless(Faulty):
        observation_layout = None

    with pytest.raises(EnvironmentFaultError, match="observation number 1 is nan"):
        collect([Nameless(np.nan, 0.0)], n_step=1, steps=3)


@pytest.mark.parametrize("n_step", [1, 3])
def test_deterministic_environments_come_back_exactly(n_step):
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (80, 2, 2)).astype(np.float32)
    collector, replay, _ = collect([Drifting(), Drifting()], n_step, steps=0)
    for action in actions[:50]:
        step(collector, action, replay)
    other = collector_of([Drifting(), Drifting()], n_step)
    assert other.load_state(*collector.state()) == []

    following = ReplayBuffer(1000, 2, 2)
    original = ReplayBuffer(1000, 2, 2)
    for action in actions[50:]:
        np.testing.assert_array_equal(collector.observations, other.observations)
        for one, memory in ((collector, original), (other, following)):
            step(one, action, memory)
    assert rows(original) == rows(following)
    assert [f.index for f in collector._episodes] == [f.index for f in other._episodes]


def test_the_total_of_an_unfinished_episode_comes_back():
    collector, replay, _ = collect([Scripted(4, True)], n_step=1, steps=2)
    other = collector_of([Scripted(4, True)])
    other.load_state(*collector.state())
    for _ in range(2):
        finished = step(other, np.zeros((1, 1), np.float32), replay).finished
    assert (finished[0]["return"], finished[0]["steps"]) == (1111.0, 4)


def test_an_environment_that_does_not_repeat_is_reported_and_begins_its_next_episode():
    collector, _, _ = collect([Drifting(), Unrepeatable()], n_step=1, steps=3)
    arrays, indices = collector.state()
    other = collector_of([Drifting(), Unrepeatable()])
    assert other.load_state(arrays, indices) == [1]
    np.testing.assert_array_equal(other.observations[0], collector.observations[0])
    assert other.state()[1] == [indices[0], indices[1] + 1]
    assert len(other.state()[0]["1.actions"]) == 0


def test_a_learner_samples_what_was_collected():
    _, replay, _ = collect([Scripted(3, True)], n_step=1, steps=3)
    batch = replay.sample(20, np.random.default_rng(0), torch.device("cpu"))
    assert {(r.item(), t.item()) for r, t in zip(batch.reward, batch.terminated, strict=True)} == {
        (1.0, 0.0), (10.0, 0.0), (100.0, 1.0),
    }  # fmt: skip


def test_an_observation_that_is_not_finite_at_reset_is_a_fault():
    class Broken(Scripted):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.full(1, np.nan), {}

    with pytest.raises(EnvironmentFaultError, match=r"number 0 is nan in environment 0, episode 0, reset"):
        collector_of([Broken(3, terminates=True)])
