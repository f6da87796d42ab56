"""Environments that step together do what each does alone, which is the reference."""

from collections import Counter
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from td3robot.envs.vectorized.env import VectorizedRobotEnv, can_be_vectorized

from td3robot.build import make_environment, make_robot_env
from td3robot.config import load_config
from td3robot.errors import CommandRefusedError, EnvironmentFaultError, RobotError
from td3robot.learning.environments import EnvironmentProcesses, LocalEnvironments
from td3robot.learning.runs import training_environments
from td3robot.robots.franky_sim import PACKAGE
from td3robot.tasks.reach import Reach

COUNT = 4
needs_fr3 = pytest.mark.skipif(find_spec(PACKAGE) is None, reason="needs the FR3's model: pip install td3robot[franka]")
CASES = [
    ("ur5e_grasp", "off"),
    ("ur5e_grasp", "real"),
    ("ur5e_grasp", "real", "environment.action.wait_for_gripper=false", "environment.task.close_within_m=null"),
    ("ur5e_grasp", "real", "environment.action.per_axis=true"),
    ("ur5e_grasp", "off", "environment.task.practice_share=1", "environment.task.practice_lifted_share=1"),
    ("ur5e_grasp", "real", "environment.task.practice_share=1", "environment.task.practice_lifted_share=1"),
    ("ur5e_reach", "off"),
    ("ur5e_reach", "real"),
    ("ur10e_grasp", "real"),
    ("ur5e_grasp", "off", "environment.task.rewards.press=3", "environment.task.practice_offset_m=[0.04,0.02]"),
    ("ur3e_reach", "mild"),
    ("ur5e_reach_joint", "real"),
    ("ur5e_grasp_joint", "off"),
    ("ur5e_grasp_joint", "real", "environment.task.joint_way=true"),
    # Seven joints, whose speed limits depend on the posture.
    pytest.param(("fr3_reach", "off"), marks=needs_fr3),
    pytest.param(("fr3_grasp", "real"), marks=needs_fr3),
    pytest.param(("fr3_reach", "real", "environment.action.kind=joint_delta"), marks=needs_fr3),
]


def configurations(name, disturbance, *more):
    """Environments of which some are undisturbed in some of their parts, as in training."""
    overrides = [f"environment.disturbance={disturbance}", f"training.environments={COUNT}"]
    if disturbance == "real":
        overrides += ["training.undisturbed_share=0.5", "training.undisturbed_by_part=true"]
    return training_environments(load_config(Path(name), [*overrides, *more]))


def make(configs):
    return [make_robot_env(config, practice=True) for config in configs]


class Together:
    """Vectorized environments, with the reset of each."""

    def __init__(self, configs):
        self.environments = make(configs)
        self.vectorized = VectorizedRobotEnv(self.environments)
        self.size = self.environments[0].action_space.shape[0]

    def reset(self, row, seed):
        observation, _ = self.environments[row].reset(seed=seed)
        self.vectorized.begin(row)
        return observation

    def step(self, actions, rows=None):
        rows = np.arange(len(actions)) if rows is None else np.array(rows)
        return self.vectorized.step(np.asarray(actions, np.float32), rows)


def wild_actions(size, steps, seed=0):
    """Random actions that last, so that arms meet every limit: (steps, COUNT, size)."""
    rng = np.random.default_rng(seed)
    actions = np.zeros((steps, COUNT, size), np.float32)
    for step in range(steps):
        new = rng.random(COUNT) < 0.08
        fresh = np.clip(rng.uniform(-2.0, 2.0, (COUNT, size)), -1.0, 1.0)
        actions[step] = np.where(new[:, None] | (step == 0), fresh, actions[step - 1])
    return actions


def assert_same_step(alone, together, row):
    observation, reward, terminated, truncated, info = alone
    np.testing.assert_allclose(together.observations[row], observation, rtol=0, atol=1e-5)
    assert together.rewards[row] == pytest.approx(reward, abs=1e-5)
    assert not terminated
    assert together.truncated[row] == truncated
    other = together.infos()[row]
    assert other.keys() == info.keys()
    for name in ("interventions", "success", "is_success"):
        assert other.get(name) == info.get(name), name
    for name in ("distance_m", "tcp_speed_m_s", "joint_speed_rad_s", "reward_terms"):
        assert other[name] == pytest.approx(info[name], abs=1e-5), name


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case))
@pytest.mark.quick("ur5e_reach real", "ur5e_reach_joint real", "ur10e_grasp real", "ur5e_grasp off")
def test_together_they_do_what_each_does_alone(case):
    configs = configurations(*case, "environment.episode_s=1.2")
    alone, together = make(configs), Together(configs)
    for row in range(COUNT):
        np.testing.assert_array_equal(together.reset(row, row), alone[row].reset(seed=row)[0])
    for step, actions in enumerate(wild_actions(together.size, 50)):
        steps = together.step(actions)
        for row, environment in enumerate(alone):
            assert_same_step(environment.step(actions[row]), steps, row)
            if steps.truncated[row]:
                seed = 100 * step + row
                np.testing.assert_array_equal(together.reset(row, seed), environment.reset(seed=seed)[0])


def test_what_the_guard_changes_is_what_it_changes_alone():
    """Drive against the table, the walls and the arm itself, where the guard has to search."""
    configs = configurations("ur5e_reach", "off", "environment.episode_s=10.0")
    alone, together = make(configs), Together(configs)
    for row in range(COUNT):
        together.reset(row, row)
        alone[row].reset(seed=row)
    directions = np.array([[0, 0, -1], [1, 1, 0], [-1, 0, 1], [0, -1, 0]], np.float32)
    found = Counter()
    for _ in range(60):
        steps = together.step(directions)
        for row, environment in enumerate(alone):
            changed = environment.step(directions[row])[4]["interventions"]
            assert steps.infos()[row]["interventions"] == changed
            found.update(changed)
    assert {"workspace", "acceleration"} <= found.keys() or {"clearance", "acceleration"} <= found.keys()


@pytest.mark.parametrize("disturbance", ["off", "real"])
def test_together_empty_fingers_open_as_they_do_alone(disturbance):
    task = "environment.task.practice_"
    near = f"{task}share=1", f"{task}lifted_share=0", f"{task}turn_rad=0.2", f"{task}offset_m=[0.01,0.01]"
    moving = "environment.task.close_within_m=0.1", "environment.action.wait_for_gripper=false"
    configs = configurations("ur5e_grasp", disturbance, *near, *moving)
    alone, together = make(configs), Together(configs)
    for row in range(COUNT):
        together.reset(row, row)
        alone[row].reset(seed=row)
    up_and_close = np.tile(np.array([0, 0, 1, 0, 1], np.float32), (COUNT, 1))
    commands = []
    for _ in range(80):
        steps = together.step(up_and_close)
        for row, environment in enumerate(alone):
            assert_same_step(environment.step(up_and_close[row]), steps, row)
        commands.append([environment.guard.commanded.gripper for environment in alone])
    assert (np.array(commands).max(axis=0) == 1.0).all()
    assert commands[-1] == [0.0] * COUNT


def test_together_a_share_of_the_episodes_goes_on_after_a_hold_as_it_does_alone():
    task = "environment.task."
    lifted = f"{task}practice_share=1", f"{task}practice_lifted_share=1", f"{task}lift_height_m=0.01"
    short = f"{task}practice_hold_s=0.3", f"{task}practice_whole_share=0.5"
    configs = configurations("ur5e_grasp", "off", *lifted, *short)
    alone, together = make(configs), Together(configs)
    rests, ended = np.zeros((COUNT, together.size), np.float32), []
    for seed in range(4):
        for row in range(COUNT):
            together.reset(row, 10 * seed + row)
            alone[row].reset(seed=10 * seed + row)
        over = np.zeros(COUNT, np.bool_)
        for _ in range(20):
            steps = together.step(rests)
            for row, environment in enumerate(alone):
                assert_same_step(environment.step(rests[row]), steps, row)
            over |= steps.truncated
        ended += over.tolist()
    assert 2 <= sum(ended) <= 4 * COUNT - 2


@pytest.mark.parametrize("name", ["ur5e_reach", "ur5e_reach_joint"])
def test_together_they_slide_along_walls_as_each_does_alone(name):
    """Drive on into walls, edges and the floor until most arms have met one."""
    walls = "environment.guard.workspace={low: [-0.35, 0.2, 0.03], high: [0.35, 0.8, 0.5]}"
    configs = configurations(name, "off", "environment.episode_s=10.0", walls)
    alone, together = make(configs), Together(configs)
    actions = np.random.default_rng(1).uniform(-1.0, 1.0, (COUNT, together.size)).astype(np.float32)
    for row in range(COUNT):
        together.reset(row, row)
        alone[row].reset(seed=row)
    terms = alone[0].action_kind.terms()
    met = np.zeros(COUNT, int)
    for _ in range(100):
        steps = together.step(actions)
        for row, environment in enumerate(alone):
            assert_same_step(environment.step(actions[row]), steps, row)
            position = environment.world.commanded_tcp.position
            met[row] += bool((np.minimum(position - terms.low, terms.high - position) < 1e-3).any())
    assert (met > 10).sum() >= 3, met


def test_an_environment_does_not_depend_on_those_beside_it():
    """Bit for bit: so results do not depend on how many processes share the environments."""
    configs = configurations("ur5e_grasp", "real")
    everyone, some = Together(configs), Together(configs)
    for row in range(COUNT):
        everyone.reset(row, row)
        some.reset(row, row)
    for actions in wild_actions(everyone.size, 30):
        whole = everyone.step(actions)
        for rows in ([2], [0, 3], [1]):
            part = some.step(actions[rows], rows)
            np.testing.assert_array_equal(part.observations, whole.observations[rows])
            np.testing.assert_array_equal(part.rewards, whole.rewards[rows])
            assert part.infos() == [whole.infos()[row] for row in rows]


def test_several_threads_of_physics_change_nothing():
    configs = configurations("ur5e_grasp", "real")
    one, two = Together(configs), Together(configs)
    two.vectorized = VectorizedRobotEnv(two.environments, threads=2)
    for row in range(COUNT):
        one.reset(row, row)
        two.reset(row, row)
    for actions in wild_actions(one.size, 20):
        ours, theirs = one.step(actions), two.step(actions)
        np.testing.assert_array_equal(ours.observations, theirs.observations)
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)


def test_an_action_that_is_not_finite_is_refused():
    together = Together(configurations("ur5e_reach", "off"))
    for row in range(COUNT):
        together.reset(row, row)
    actions = np.zeros((COUNT, together.size))
    actions[2, 1] = np.nan
    with pytest.raises(EnvironmentFaultError, match="not finite numbers"):
        together.step(actions)


def test_a_state_that_is_too_old_is_refused():
    (config, *_) = configurations("ur5e_reach", "real", "training.undisturbed_share=0.0")
    late = config.disturbance.model_copy(update={"observation_delay_s": (0.1, 0.1)})
    guard = config.guard.model_copy(update={"max_state_age_s": 0.07})
    together = Together([config.model_copy(update={"disturbance": late, "guard": guard})])
    together.reset(0, 0)
    with pytest.raises(CommandRefusedError, match=r"old, more than guard\.max_state_age_s"):
        for _ in range(4):
            together.step(np.zeros((1, together.size)))


def test_a_simulation_that_becomes_unstable_is_an_error_alone_and_together():
    together = Together(configurations("ur5e_reach", "off"))
    for row in range(COUNT):
        together.reset(row, row)
    environment = together.environments[1]
    model = environment.robot.own_model()
    together.reset(1, 1)
    model.opt.timestep, model.actuator_forcerange[:] = 0.2, (-1e20, 1e20)
    model.actuator_gainprm[:6] *= 1e6
    action = np.ones(together.size, np.float32)
    with pytest.raises(RobotError, match="the simulation of the arm 'ur5e' became unstable"):
        together.step(np.tile(action, (COUNT, 1)))
    with pytest.raises(RobotError, match="the simulation of the arm 'ur5e' became unstable"):
        environment.step(action)


def test_an_exception_in_foreign_code_is_a_fault_of_the_environment_together_too(monkeypatch):
    together = Together(configurations("ur5e_reach", "off"))
    for row in range(COUNT):
        together.reset(row, row)

    def score(*arguments):
        raise ValueError("the task lost its marbles")

    monkeypatch.setattr(together.vectorized._task, "score", score)
    with pytest.raises(EnvironmentFaultError, match=r"'reach' raised ValueError: the task lost its marbles .* in step"):
        together.step(np.zeros((COUNT, together.size), np.float32))


class OtherReach(Reach):
    """Scores something else, of which the vectorized reach knows nothing."""


def test_what_is_not_exactly_what_is_vectorized_steps_alone():
    (config,) = training_environments(load_config(Path("ur5e_reach"), ["training.environments=1"]))
    environment = make_robot_env(config)
    assert can_be_vectorized(environment)
    environment.task = OtherReach(config.task, environment.robot.spec, 0.25)
    assert not can_be_vectorized(environment)
    kinematic = config.model_copy(update={"robot": config.robot.model_copy(update={"backend": "kinematic"})})
    assert not can_be_vectorized(make_robot_env(kinematic))


def test_a_training_s_environments_give_the_same_in_any_number_of_processes():
    configs = configurations("ur5e_grasp", "real")
    build = partial(make_environment, practice=True)
    here = LocalEnvironments([build(config) for config in configs], physics_threads=1)
    with closing(here), closing(EnvironmentProcesses(build, configs, 3, physics_threads=1)) as there:
        for row in range(COUNT):
            np.testing.assert_array_equal(here.reset(row, row), there.reset(row, row))
        for actions in wild_actions(here.facts.action_shape[0], 10):
            for each in (here, there):
                each.start(actions)
            for one, other in zip(here.finish(), there.finish(), strict=True):
                np.testing.assert_array_equal(one.observation, other.observation)
                assert (one.reward, one.truncated, one.success) == (other.reward, other.truncated, other.success)
                assert (one.reward_terms, one.interventions) == (other.reward_terms, other.interventions)
        for row in (3, 1):
            one, other = (each.step(row, actions[row]) for each in (here, there))
            np.testing.assert_array_equal(one.observation, other.observation)
