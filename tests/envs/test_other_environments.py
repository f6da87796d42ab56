"""Environments that other people wrote: what Gymnasium allows trains, or is refused with the wrapper that helps."""

import os
import random
import sys
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    Sequence,
    Text,
    Tuple,
)
from other_environments import newest, outcome

from td3robot.build import make_environment
from td3robot.config import GymnasiumEnvironmentConfig
from td3robot.envs import gymnasium_env
from td3robot.envs.checked import CheckedEnvironment
from td3robot.envs.gymnasium_env import action_range, make_gymnasium
from td3robot.envs.playing import evaluate
from td3robot.envs.rows import SingleRows
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.learning.collector import Collector
from td3robot.learning.environments import EnvironmentProcess, LocalEnvironments

UNIT = Box(-1.0, 1.0, (1,), np.float32)


class Other(gymnasium.Env):
    """An environment whose spaces and answers are given; its observation is its own buffer."""

    def __init__(self, observed=None, actions=None, info=None, length=5, **returned):
        self.observation_space = observed or Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = actions or UNIT
        self.buffer, self.sent, self.count = np.zeros(2, np.float32), [], 0
        self.info, self.length, self.returned = info or {}, length, returned

    def observe(self):
        space = self.observation_space
        is_buffer = isinstance(space, Box) and space.shape == (2,) and space.dtype == np.float32
        return self.buffer if is_buffer else space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count = 0
        self.buffer[:] = self.np_random.normal(size=2)
        return self.observe(), {}

    def step(self, action):
        assert action in self.action_space, f"{action!r} is not in {self.action_space}"
        self.sent.append(np.array(action))
        action *= 2.0  # it is the environment's own
        self.buffer += 0.1
        self.count += 1
        ends = self.returned.get("terminated", False), self.returned.get("truncated", self.count == self.length)
        info = self.info(self.count) if callable(self.info) else self.info
        return self.returned.get("observation", self.observe()), self.returned.get("reward", 1.0), *ends, info


gymnasium.register("Other-v0", Other, disable_env_checker=True)


def configured(**kwargs):
    return GymnasiumEnvironmentConfig.model_construct(kind="gymnasium", id="Other-v0", kwargs=kwargs)


def made(**kwargs):
    return make_environment(configured(**kwargs))


def stepped(**kwargs):
    environment = made(**kwargs)
    environment.reset(seed=1)
    return environment.step(np.zeros(environment.action_space.shape, np.float32))


def test_an_environment_may_return_its_own_buffer():
    environments = LocalEnvironments([made()])
    collector = Collector(environments, seed=1, n_step=1, gamma=0.9)
    for _ in range(3):
        collector.start(np.zeros((1, 1), np.float32))
        (transition,) = collector.advance(collector.finish()).transitions
        np.testing.assert_allclose(np.subtract(transition.next_observation, transition.observation), 0.1, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_actions_never_leave_the_box(dtype):
    rng = np.random.default_rng(0)
    low = rng.uniform(-3, 3, 800).astype(dtype)
    widths = rng.uniform(0, 2, 800) * rng.choice([1.0, 1e-3, 1e-7, 0.0], 800)
    box = Box(low, (low + widths).astype(dtype), dtype=dtype)
    environment = made(actions=box)
    environment.reset(seed=1)
    for value in (-1.0, 1.0, -0.999999, 0.999999, *rng.uniform(-1, 1, 20)):
        environment.step(np.full(800, value, np.float32))
    low, high = environment.unwrapped.sent[:2]
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(low, box.low, rtol=tolerance, atol=3 * tolerance)
    np.testing.assert_allclose(high, box.high, rtol=tolerance, atol=3 * tolerance)


@pytest.mark.parametrize("shape", [(), (2, 3), (1,)])
def test_actions_may_have_any_shape(shape):
    environment = made(actions=Box(-2.0, 4.0, shape, np.float64))
    environment.reset(seed=1)
    assert environment.action_space.shape == (int(np.prod(shape)),)
    environment.step(np.full(environment.action_space.shape, 0.5, np.float32))
    np.testing.assert_allclose(environment.unwrapped.sent[0], np.full(shape, 2.5))
    assert [bound.tolist() for bound in action_range(environment)] == [[each] * int(np.prod(shape)) for each in (-2, 4)]


def test_a_component_with_one_value_is_sent_as_it_is():
    environment = made(actions=Box(np.array([-1, 3], np.float32), np.array([1, 3], np.float32)))
    environment.reset(seed=1)
    environment.step(np.array([0.5, -1.0], np.float32))
    np.testing.assert_array_equal(environment.unwrapped.sent[0], [0.5, 3.0])


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (Discrete(3), "needs a bounded Box of floats, because its actions are continuous; wrap it with gymnasium.wrap"),
        (MultiBinary(3), "because its actions are continuous"),
        (MultiDiscrete([2, 3]), "because its actions are continuous"),
        (Dict(arm=UNIT, hand=Discrete(2)), "because its actions are continuous"),
        (Tuple([UNIT, UNIT]), "because its actions are continuous"),
        (Box(0, 10, (1,), np.int64), "of whole numbers, and TD3 needs a bounded Box of floats; .*TransformAction"),
        (Box(0, 255, (2,), np.uint8), "of whole numbers"),
        (Box(-np.inf, np.inf, (1,), np.float32), "TD3 needs finite bounds; wrap it with .*TransformAction"),
        (Box(0.0, np.inf, (1,), np.float32), "TD3 needs finite bounds"),
        (Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (1,), np.float32), "TD3 needs finite bounds"),
        (Box(-1, 1, (0,), np.float32), "empty: there is nothing to choose"),
    ],
    ids=str,
)
def test_actions_that_td3_cannot_choose_are_refused_with_what_helps(actions, words):
    with pytest.raises(ConfigError, match=words) as caught:
        made(actions=actions)
    assert "'Other-v0' has the action space" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (Graph(UNIT, None), "a fixed number of numbers, which Graph has not; wrap it with .*TransformObservation"),
        (Sequence(UNIT), "which Sequence has not"),
        (Text(5), "which Text has not"),
        (Dict(a=UNIT, b=Dict(c=Sequence(UNIT))), "which Sequence has not"),
        (Box(0, 255, (8, 8, 3), np.uint8), "which are images"),
        (Dict(camera=Box(0, 255, (8, 8, 3), np.uint8), q=UNIT), "which are images"),
        (Box(-1, 1, (0,), np.float32), "there is nothing to observe"),
    ],
    ids=str,
)
def test_observations_that_have_no_fixed_size_are_refused_with_what_helps(observed, words):
    with pytest.raises(ConfigError, match=words) as caught:
        made(observed=observed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("observed", "size"),
    [
        (Box(-1, 1, (), np.float32), 1),
        (Box(-1, 1, (2, 3), np.float64), 6),
        (Box(0, 9, (4,), np.int64), 4),
        (Discrete(3), 3),
        (MultiBinary(4), 4),
        (MultiDiscrete([2, 3]), 5),
        (Tuple([UNIT, Discrete(2)]), 3),
        (Dict(observation=Box(-1, 1, (6,)), goal=Dict(a=Box(-1, 1, (3,), np.float64), b=MultiBinary(2))), 11),
    ],
    ids=str,
)
def test_observations_of_a_fixed_size_are_flattened(observed, size):
    environment = made(observed=observed)
    observation, _ = environment.reset(seed=1)
    assert (observation.shape, observation.dtype) == ((size,), np.float32)
    after, *_ = environment.step(np.zeros(1, np.float32))
    assert (after.shape, after.dtype) == ((size,), np.float32)


@pytest.mark.parametrize("value", [True, np.True_, 1, 1.0, np.float32(1), np.array(True), np.array([1.0])], ids=repr)
@pytest.mark.parametrize("key", ["success", "is_success"])
def test_success_is_read_as_others_write_it(key, value):
    assert stepped(info={key: value})[4]["success"] is True
    figures = evaluate(made(info={key: value}), lambda _: np.zeros(1, np.float32), 2, seed=1)
    assert figures.success_rate == 1.0


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"success": "no"}, r"info\['success'\] is 'no'; it must be true or false"),
        ({"is_success": np.array([True, False])}, r"info\['is_success'\] is array\(\[ True, False\]\)"),
        ({"success": 0.7}, "is 0.7; it must be true or false"),
        ({"success": np.nan}, "is nan; it must be true or false"),
        ({"reward_terms": [1.0, 2.0]}, r"info\['reward_terms'\] is \[1.0, 2.0\]; .* a dictionary of numbers by name"),
        ({"reward_terms": {"reach": "much"}}, r"info\['reward_terms'\]\['reach'\] is 'much'"),
        ({"distance_m": np.zeros(3)}, r"info\['distance_m'\] is array"),
        ([], r"info is \[\]; it must be a dictionary"),
    ],
    ids=str,
)
def test_info_that_cannot_be_read_is_told_at_the_first_step(info, words):
    with pytest.raises(EnvironmentFaultError, match=words):
        stepped(info=info or (lambda count: info))


def test_info_that_is_of_robots_only_or_of_nobody_is_not_read():
    info = {
        "interventions": 3, "fault": False, "tcp_speed_m_s": "fast", "joint_speed_rad_s": np.zeros(6), "any": lambda: 0,
        "success": None, "reward_terms": {"reach": np.float32(0.5), "rest": np.array([2])}, "distance_m": np.ones(1),
    }  # fmt: skip
    figures = evaluate(made(info=info), lambda _: np.zeros(1, np.float32), 2, seed=1)
    assert (figures.success_rate, figures.mean_final_distance_m, figures.guard_interventions) == (None, 1.0, None)
    environments = LocalEnvironments([made(info=info)])
    environments.reset(0, 1)
    step = environments.step(0, np.zeros(1, np.float32))
    assert (step.success, step.reward_terms, step.interventions) == (None, {"reach": 0.5, "rest": 2.0}, ())
    assert stepped(info=info)[4]["any"]() == 0  # whoever uses the environment in a program has all of it


@pytest.mark.parametrize(
    "reward", [1, 1.0, np.float32(1), np.array(1.0), np.array([1.0]), np.array([[1]]), True], ids=repr
)
def test_a_reward_may_be_any_number(reward):
    assert stepped(reward=reward)[1] == 1.0


@pytest.mark.parametrize("over", [False, 0, np.False_, np.array(False), np.array([0])], ids=repr)
def test_what_ends_an_episode_may_be_any_truth(over):
    assert stepped(terminated=over, truncated=over)[2:4] == (False, False)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"reward": np.zeros(2)}, "raised ValueError: can only convert an array of size 1"),
        ({"reward": None}, "raised TypeError"),
        ({"terminated": "False"}, "terminated is 'False'; it must be true or false"),
        ({"truncated": None}, "truncated is None; it must be true or false"),
        ({"terminated": np.array([False, True])}, "terminated is array"),
        ({"observation": ["a", "b"]}, "of type <U1; its observation space promises numbers of shape"),
        ({"observation": [[1.0], [2.0, 3.0]]}, "raised ValueError"),
        ({"observation": np.zeros(3)}, r"of shape \(3,\) in step"),
        ({"observation": None}, r"of shape \(\) in step"),
    ],
    ids=str,
)
def test_what_breaks_the_contract_is_one_sentence(returned, words):
    with pytest.raises(EnvironmentFaultError, match=words) as caught:
        stepped(**returned)
    assert "\n" not in str(caught.value)


def test_an_observation_may_be_a_list_or_of_another_type():
    assert stepped(observation=[1, 2])[0].dtype == np.float32


def test_an_episode_that_never_ends_is_told_with_what_limits_it(monkeypatch):
    monkeypatch.setattr(gymnasium_env, "LONGEST_EPISODE", 20)
    act = lambda _: np.zeros(1, np.float32)  # noqa: E731
    with pytest.raises(EnvironmentFaultError, match=r"after 20 steps, .* nothing limits it; .*max_episode_steps"):
        evaluate(made(length=None), act, 1, seed=1)
    assert evaluate(made(length=None, max_episode_steps=50), act, 1, seed=1).mean_steps == 50
    assert evaluate(made(length=20), act, 2, seed=1).mean_steps == 20


SIMPLE = """
import gymnasium
import numpy as np

class {name}(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, {arguments}):
        self.count = 0

    def reset(self, {options}):
        self.count = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.count += 1
        return action, 0.0, False, self.count == 5, {{"info": lambda: 0}}

{registered}
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Write a module with an environment into the working directory, which is on no path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = dict(gymnasium.registry)

    def write(name, arguments="scale=1.0", options="*, seed=None, options=None", registered=True):
        line = f'gymnasium.register("{name}-v0", {name})' if registered else ""
        (tmp_path / f"{name.lower()}_beside.py").write_text(
            SIMPLE.format(name=name, arguments=arguments, options=options, registered=line)
        )
        return f"{name.lower()}_beside:{name}" + ("-v0" if registered else "")

    yield write
    for module in [module for module in sys.modules if module.endswith("_beside")]:
        del sys.modules[module]
    for name in gymnasium.registry.keys() - before.keys():
        del gymnasium.registry[name]


def config_of(name, **kwargs):
    return GymnasiumEnvironmentConfig(kind="gymnasium", id=name, kwargs=kwargs)


def test_a_module_in_the_working_directory_is_found_here_and_in_another_process(beside):
    config = config_of(beside("Here"))
    make_environment(config).close()
    with closing(EnvironmentProcess(make_environment, [config])) as process:
        process.reset(0, 1)
        process.start(np.zeros((1, 2), np.float32))
        assert process.finish()[0].reward == 0.0  # its info cannot be sent, and is not


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            {"name": "Unregistered", "registered": False},
            r"does not register it: add gymnasium.register\(id='Unregis.*-v0",
        ),
        ({"name": "Needy", "arguments": "size, weight"}, r"'size' and 'weight'.*--set environment.kwargs.NAME=VALUE"),
        ({"name": "NoSuch", "arguments": "*, missing"}, "'missing'.*environment.kwargs.NAME"),
    ],
    ids=["unregistered", "arguments", "keyword"],
)
def test_an_environment_that_cannot_be_made_says_what_to_do(beside, module, words):
    with pytest.raises(ConfigError, match=words):
        make_gymnasium(config_of(beside(**module)))


def test_an_environment_needs_no_render_mode_until_it_is_drawn(beside):
    name = beside("Blind")
    make_gymnasium(config_of(name)).close()
    with pytest.raises(ConfigError, match="it takes no render_mode, so no film of it can be made"):
        make_gymnasium(config_of(name), "rgb_array")


def test_an_environment_that_takes_no_seed_is_told_so(beside):
    environment = make_environment(config_of(beside("Seedless", options="")))
    with pytest.raises(EnvironmentFaultError, match=r"unexpected keyword argument 'seed'"):
        environment.reset(seed=1)


def test_a_program_without_a_display_draws_with_egl(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")
    if sys.platform == "linux":
        make_gymnasium(config_of("Pendulum-v1"), "rgb_array").close()
        assert os.environ["MUJOCO_GL"] == "egl"


def test_an_environment_that_draws_from_the_global_generators_repeats():
    environment = made(info=lambda count: {"drawn": (np.random.rand(), random.random())})  # noqa: NPY002
    drawn = []
    for seed in (1, 1, 2):
        environment.reset(seed=seed)
        drawn.append(environment.step(np.zeros(1, np.float32))[4]["drawn"])
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2]


def test_rows_keep_of_the_info_what_they_read():
    rows = SingleRows([made(info={"picture": np.zeros(9), "is_success": True})])
    rows.reset(0, 1)
    taken = rows.step(np.zeros((1, 1), np.float32), np.array([0]))
    assert taken.infos() == [{"success": True}]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Pendulum-v1", ("trains", "an episode of 200 steps")),
        ("CartPole-v1", ("refused", "its actions are continuous")),
    ],
)
def test_the_table_of_other_environments_says_what_became_of_one(name, found):
    kind, words = outcome(name)
    assert kind == found[0] and found[1] in words


def test_the_table_has_the_newest_version_of_each():
    assert newest(["B", "A-v2", "A-v10", "C/D-v0", "A-v1"]) == ["A-v10", "B", "C/D-v0"]


class OldStep(Other):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class OldReset(Other):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldSeed(Other):
    def reset(self):
        return super().reset()[0]


class OwnMistake(Other):
    def step(self, action):
        (_one,) = (1, 2)  # the environment's own


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "old"), [(OldStep, True), (OldReset, True), (OldSeed, True), (OwnMistake, False)])
def test_an_environment_with_the_old_api_of_gym_gets_the_remedy(kind, old):
    gymnasium.register("Old-v0", entry_point=kind, max_episode_steps=5)
    try:
        environment = CheckedEnvironment(make_gymnasium(GymnasiumEnvironmentConfig(id="Old-v0")), "old")
        with pytest.raises(EnvironmentFaultError) as said, closing(environment) as checked:
            checked.reset(seed=1)
            checked.step(np.zeros(1, np.float32))
    finally:
        del gymnasium.registry["Old-v0"]
    assert ("this is the API of Gym before 0.26: let step return" in str(said.value)) == old
    assert ("shimmy[gym-v21]" in str(said.value)) == old
