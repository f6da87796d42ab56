"""The grasp environment: as Gymnasium wants it, and what it does where nobody knows any more where the object is."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import td3robot  # noqa: F401  # registers the environment
from td3robot import seeding
from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, ActionConfig, RobotConfig, RobotEnvironmentConfig, RunConfig, TrainingConfig
from td3robot.config.disturbance import part_of
from td3robot.config.objects import ObjectConfig
from td3robot.envs.actions import CLOSES_AT
from td3robot.envs.playing import evaluate
from td3robot.envs.retreat import STUCK_S
from td3robot.envs.rows import SingleRows
from td3robot.errors import ConfigError, ContractError, RobotError, TrackerError
from td3robot.layout import Field, Layout
from td3robot.learning.collector import Collector
from td3robot.learning.environments import LocalEnvironments
from td3robot.learning.runs import make_trainer
from td3robot.robots.cells import CellConfig
from td3robot.robots.objects import Objects
from td3robot.robots.simulated.disturbed import DisturbedRobot
from td3robot.tasks import TASKS, grasp
from td3robot.tasks.grasp import Grasp, GraspConfig
from td3robot.tasks.interface import CLOSING_PER_S, NOTHING_HELD, Task
from td3robot.tasks.scripted import scripted_grasp

CONFIG = RobotEnvironmentConfig(task=GraspConfig(), action=ActionConfig(exponent=3.0), episode_s=12.0)
UP = np.array([0.0, 0.0, 1.0, 0.0, -1.0], np.float32)


@pytest.mark.filterwarnings("ignore:.*Box observation space m[a-z]+imum value is -?infinity.*")
def test_gymnasium_finds_nothing_to_object():
    environment = gymnasium.make("td3robot/UR5eGrasp-v1")
    check_env(environment.unwrapped, skip_render_check=True)
    assert environment.action_space.shape == (5,)
    assert environment.unwrapped.contract().terms["episode_steps"] == 240
    environment.close()


@pytest.mark.parametrize(("kind", "size"), [("tcp_delta", 5), ("joint_delta", 7)])
def test_an_action_has_the_gripper_last(kind, size):
    environment = make_robot_env(CONFIG.model_copy(update={"action": ActionConfig(kind=kind)}))
    assert environment.action_space.shape == (size,)
    assert environment.action_kind.layout.component(size - 1) == "gripper.closed"
    environment.reset(seed=0)
    close = np.zeros(size, np.float32)
    close[-1] = 1.0
    for _ in range(20):
        environment.step(close)
    assert environment.batch.seen.intent[0] == 1.0
    environment.close()


@pytest.mark.parametrize("disturbance", ["off", "real"])
@pytest.mark.quick("real")
def test_practice_begins_with_the_object_in_the_hand_and_an_evaluation_never_does(disturbance, monkeypatch):
    monkeypatch.setattr(grasp, "PRACTICE_LIFTED_SHARE", 1.0)
    task = GraspConfig(practice_share=1.0)
    config = CONFIG.model_copy(update={"task": task, "disturbance": DISTURBANCES[disturbance]})
    for practice in (True, False):
        environment = make_robot_env(config, practice=practice)
        for seed in range(6):
            environment.reset(seed=seed)
            world, goal = environment.world, environment.goal
            height = world.objects["object"].position[2] - goal.objects["object"].position[2]
            assert (world.held is not None) == practice
            assert environment.batch.seen.intent[0] == environment.guard.commanded.gripper == float(practice)
            assert (0.1 * goal.lift_m < height < goal.lift_m + 0.01) if practice else abs(height) < 1e-3
            assert np.abs(environment.guard.velocity).max() < 1e-6
            if practice:  # carried on, it is lifted
                for _ in range(25):
                    info = environment.step(np.array([0, 0, 1, 0, 1], np.float32))[-1]
                assert info["distance_m"] == 0.0
        environment.close()


CLOSE, OPEN, NEITHER = (np.array([0, 0, 0, 0, gripper], np.float32) for gripper in (1, -1, 0))


# The fingers may close far from the object, and turned from it: a cylinder looks alike from everywhere.
ANYWHERE = GraspConfig(object=ObjectConfig(shape="cylinder"), close_within_m=2.0)


@pytest.fixture
def environment(begun):
    return begun(CONFIG.model_copy(update={"task": ANYWHERE}))


def told(environment, *actions):
    """Give what the gripper was told after each action."""
    for action in actions:
        environment.step(action)
        yield environment.guard.commanded.gripper


def test_the_intent_outlives_the_pauses_between_key_presses_and_ends_with_its_episode(environment):
    found = []
    for _ in range(5):  # as `confirm` does: one period, then a rest
        environment.resume()
        environment.preview(CLOSE)
        found += told(environment, CLOSE)
    assert found == [0.0] * 4 + [1.0]
    assert environment.batch.seen.intent[0] == pytest.approx(0.75)
    environment.reset(seed=0)
    assert environment.batch.seen.intent[0] == 0.0
    assert list(told(environment, *[CLOSE] * 4)) == [0.0] * 4


@pytest.mark.parametrize("closed", [0.0, 0.18, 0.5])
def test_a_gripper_that_was_moved_by_hand_stays_so_until_an_action_asks_for_more(environment, closed):
    for _ in range(10):
        environment.drive(replace(environment.guard.commanded, gripper=closed))
    assert set(told(environment, *[NEITHER] * 3)) == {closed}
    assert list(told(environment, *[OPEN] * 5))[-1] == 0.0
    assert max(told(environment, *[CLOSE] * 10)) == 1.0


def test_a_rest_within_an_episode_may_be_observed_as_motion(environment):
    velocity = np.full(6, 0.05)
    environment.resume(velocity)
    assert np.linalg.norm(environment.batch.seen.commanded_velocity[0]) > 0.005
    environment.resume()
    np.testing.assert_array_equal(environment.batch.seen.commanded_velocity[0], 0.0)


def test_the_closing_rate_is_that_of_the_closed_fraction(environment):
    rates = []
    for _ in range(14):
        environment.step(CLOSE)
        rates.append(environment.batch.seen.closing_rate[0])
    assert rates[0] == pytest.approx(0.0, abs=0.05)
    assert max(rates) == pytest.approx(0.15 / 0.085, rel=0.1)  # 150 mm/s of 85 mm


SLOW_FINGERS = DISTURBANCES["off"].model_copy(update={"gripper_speed": (0.13, 0.13)})
AWAY = np.array([1, 0, 0, 1, 1], np.float32)


def test_the_arm_waits_for_a_gripper_that_closes_and_then_goes_on(begun):
    environment = begun(CONFIG.model_copy(update={"disturbance": SLOW_FINGERS, "task": ANYWHERE}))
    found = []
    for _ in range(110):
        environment.step(AWAY)
        seen = environment.batch.seen
        turning = 0.1 * abs(seen.commanded_turn_rate[0])
        found.append((np.linalg.norm(seen.commanded_velocity) + turning, seen.closing_rate[0]))
    speed, rate = np.array(found).T
    closes = rate >= CLOSING_PER_S
    first, last = np.flatnonzero(closes)[[0, -1]]
    assert last - first > 50
    assert closes[first:last].all()
    assert speed[first - 1] > 0.1
    assert speed[first + 12 : last + 1].max() < 0.001
    assert speed[last + 3 :].max() > 0.02


def test_a_preview_waits_for_the_gripper_as_well(begun):
    environment = begun(CONFIG.model_copy(update={"disturbance": SLOW_FINGERS, "task": ANYWHERE}))
    for _ in range(30):
        environment.step(CLOSE)
    np.testing.assert_allclose(environment.preview(AWAY).command.q, environment.guard.commanded.q, atol=1e-6)


def test_a_gripper_closes_only_at_the_object(begun, monkeypatch):
    environment = begun(CONFIG)
    assert set(told(environment, *[CLOSE] * 10)) == {0.0}
    assert environment.batch.seen.intent[0] == 1.0
    assert environment.preview(CLOSE).command.gripper == 0.0
    script = scripted_grasp(environment.task.layout, CONFIG.task, CONFIG.action, environment.robot.spec, 0.25)
    observation, _ = environment.reset(seed=3)
    truncated = False
    while not truncated:
        gripper = environment.guard.commanded.gripper
        near = np.linalg.norm(environment.seen.objects["object"].position - environment.seen.tcp.position) < 0.03
        observation, _, _, truncated, info = environment.step(script.act(observation))
        assert near or environment.guard.commanded.gripper <= gripper
    assert info["success"]
    assert set(told(environment, *[OPEN] * 20)) == {1.0}  # what it holds, it keeps
    assert environment.batch.seen.stalled_s[0] == 0.0
    with monkeypatch.context() as unsure:  # also where a state or two say that it does not
        unsure.setattr(environment.task, "held", lambda state: np.full(len(state.q), NOTHING_HELD))
        assert set(told(environment, OPEN, OPEN)) == {1.0}
    assert set(told(environment, *[OPEN] * 10)) == {1.0}


def test_fingers_stall_from_their_last_command_or_motion_on(begun):
    environment = begun(CONFIG)
    for periods in range(1, 11):
        assert environment.batch.seen.stalled_s[0] == pytest.approx(0.05 * periods)
        environment.step(OPEN)
    environment.resume()  # a pause in which they rested changes nothing, as between the key presses of `confirm`
    assert environment.batch.seen.stalled_s[0] == pytest.approx(0.05 * 12)
    for _ in range(10):
        environment.robot.send(replace(environment.guard.commanded, gripper=0.3))
        environment.robot.advance()
    environment.resume()  # they moved in this one
    assert environment.batch.seen.stalled_s[0] < 0.06
    environment.drive(replace(environment.guard.commanded, gripper=1.0))
    assert environment.batch.seen.stalled_s[0] == 0.0
    stalled = []
    for _ in range(30):
        environment.drive(environment.guard.commanded)
        stalled.append(environment.batch.seen.stalled_s[0])
    assert 0.0 in stalled[2:15]  # they moved
    assert stalled[-1] > 0.4  # ... and have arrived


def test_fingers_that_closed_on_nothing_open_by_themselves(begun):
    environment = begun(CONFIG)
    environment.batch.retreat = None
    drivers = []
    for _ in range(16):
        environment.drive(replace(environment.guard.commanded, gripper=1.0))
        drivers.append(environment.seen.robot.driver_q.mean())
    assert drivers[-1] > 0.75
    assert environment.preview(CLOSE).command.gripper == 0.0
    assert set(told(environment, *[CLOSE] * 20)) == {0.0}  # the intent is to close, and the object is not here
    assert environment.batch.seen.intent[0] == 1.0
    assert environment.seen.robot.driver_q.mean() < 0.05


def rise(environment, periods, action):
    """Give how far the tool rose, and whether the gripper was told to open."""
    before = environment.world.tcp.position[2]
    for _ in range(periods):
        environment.step(action)
    return environment.world.tcp.position[2] - before, environment.guard.commanded.gripper == 0.0


def test_a_tool_that_closed_on_nothing_rises_to_look_again(environment):
    for _ in range(80):
        environment.step(CLOSE)
        if environment.batch.retreat.rises[0]:
            break
    height, is_open = rise(environment, 40, CLOSE)
    assert height > 0.1 and is_open


def test_a_tool_that_stands_still_beside_its_object_rises(begun):
    environment = begun(CONFIG)
    still = np.array([0, 0, 0, 0, -1], np.float32)
    height, _ = rise(environment, round(STUCK_S / 0.05) - 2, still)
    assert abs(height) < 0.005
    height, is_open = rise(environment, 20, still)
    assert height > 0.05 and is_open
    assert "the gripper opens and the tool rises" in environment.gripper_message


def test_a_tool_does_not_rise_in_training_nor_with_its_object_in_the_hand(monkeypatch):
    monkeypatch.setattr(grasp, "PRACTICE_LIFTED_SHARE", 1.0)
    config = CONFIG.model_copy(update={"task": GraspConfig(practice_share=1.0)})
    training = make_robot_env(config, practice=True)
    training.reset(seed=0)
    assert training.batch.retreat is None
    held, rising = training.batch.seen, make_robot_env(config)
    assert held.held[0] == 0
    assert rising.task.way_left(held, training.batch.seen_goals)[0] == 0.0
    training.close()
    rising.close()


@pytest.mark.parametrize(("practice", "whole"), [(True, 0.0), (True, 1.0), (False, 0.0)])
def test_in_training_an_episode_is_over_once_the_object_was_held_for_long_enough(practice, whole, monkeypatch):
    monkeypatch.setattr(grasp, "PRACTICE_WHOLE_SHARE", whole)
    task = GraspConfig(practice_share=0.0)
    environment = make_robot_env(CONFIG.model_copy(update={"task": task}), practice=practice)
    tool_speed = CONFIG.guard.max_tcp_speed_m_s
    script = scripted_grasp(environment.task.layout, task, CONFIG.action, environment.robot.spec, tool_speed)
    observation, _ = environment.reset(seed=3)
    length, truncated = 0, False
    while not truncated:
        observation, _, _, truncated, info = environment.step(script.act(observation))
        length += 1
    assert info["success"]
    assert (length < 240) == (practice and not whole)
    environment.close()


@pytest.mark.parametrize(("share", "calm"), [(0.0, []), (0.25, [0]), (0.75, [0, 1, 2, 3, 4]), (1.0, [*range(8)])])
@pytest.mark.quick("0.25-calm1")
def test_a_share_of_the_environments_is_undisturbed(share, calm, tmp_path):
    training = TrainingConfig(environments=8, undisturbed_share=share)
    environment = CONFIG.model_copy(update={"disturbance": DISTURBANCES["real"]})
    trainer = make_trainer(RunConfig(name="calm", environment=environment, training=training), tmp_path, None)
    robots = [each.unwrapped.robot for each in trainer.collector.environments.environments]
    assert [number for number, robot in enumerate(robots) if not isinstance(robot, DisturbedRobot)] == calm
    assert isinstance(trainer.evaluations.evaluator.environments[0].unwrapped.robot, DisturbedRobot)


def test_parts_of_cells_are_undisturbed_in_every_combination(tmp_path):
    training = TrainingConfig(environments=8, undisturbed_share=0.5)
    environment = CONFIG.model_copy(update={"disturbance": DISTURBANCES["real"]})
    trainer = make_trainer(RunConfig(name="parts", environment=environment, training=training), tmp_path, None)
    robots = [each.unwrapped.robot for each in trainer.collector.environments.environments]
    drawn = [robot.config if isinstance(robot, DisturbedRobot) else DISTURBANCES["off"] for robot in robots]
    disturbed = [
        (each.action_delay_s[1] > 0.0, each.gripper_speed[0] < 1.0, each.camera_latency_s[1] > 0.0) for each in drawn
    ]
    assert len(set(disturbed)) == 8
    assert drawn[7] == DISTURBANCES["real"]
    off, real = DISTURBANCES["off"], DISTURBANCES["real"]
    for number, each in enumerate(drawn):
        for name, value in each:
            part = ("arm", "gripper", "camera").index(part_of(name))
            assert value == getattr(real if disturbed[number][part] else off, name), (number, name)


def test_an_arm_without_contacts_grasps_nothing():
    with pytest.raises(ConfigError, match="'kinematic' has no contacts; use 'mujoco'"):
        make_robot_env(CONFIG.model_copy(update={"robot": RobotConfig(backend="kinematic")}))


@pytest.mark.parametrize("patch_high", [(0.4, 0.75), (0.2, 0.85)])
def test_a_patch_that_the_tool_cannot_reach_pointing_down_is_refused(patch_high):
    task = GraspConfig(patch_high=patch_high)
    with pytest.raises(ConfigError, match=r"the task's patch, .* which the arm cannot reach .*move or shrink"):
        make_robot_env(CONFIG.model_copy(update={"task": task}))


def test_every_episode_begins_with_the_tool_pointing_down():
    environment = make_robot_env(CONFIG)
    for seed in range(20):
        environment.reset(seed=seed)
        np.testing.assert_allclose(environment.world.tcp.rotation[2, 2], -1.0, atol=1e-4)
        assert environment.world.tcp.position[2] >= 0.149
    environment.close()


@pytest.mark.parametrize(
    "item",
    [
        ObjectConfig(),
        ObjectConfig(size_m=(0.08, 0.08, 0.05)),
        ObjectConfig(size_m=(0.12, 0.07, 0.04)),
        ObjectConfig(size_m=(0.04, 0.04, 0.12)),
        ObjectConfig(shape="cylinder", size_m=(0.075, 0.075, 0.06)),
    ],
    ids=lambda item: f"{item.shape} {item.size_m}",
)
def test_practice_begins_around_the_object_and_not_inside_it(item, monkeypatch):
    monkeypatch.setattr(grasp, "PRACTICE_LIFTED_SHARE", 0.0)
    task = GraspConfig(object=item, practice_share=1.0)
    environment = make_robot_env(CONFIG.model_copy(update={"task": task}), practice=True)
    for seed in range(15):
        environment.reset(seed=seed)
        environment.batch._intent[:] = 0.0  # some would close at once
        lying = environment.world.objects["object"].position
        tool = environment.world.tcp.position
        assert np.linalg.norm((tool - lying)[:2]) < 0.0234  # 12 mm the one way, and 20 mm the other
        for _ in range(4):
            environment.step(np.array([0, 0, 0, 0, -1], np.float32))
        assert np.linalg.norm(environment.world.objects["object"].position - lying) < 0.001
    environment.close()


def test_practice_begins_with_any_intent_and_an_evaluation_with_none():
    task = GraspConfig(practice_share=1.0)
    close = np.zeros(5, np.float32)
    for practice in (True, False):
        environment = make_robot_env(CONFIG.model_copy(update={"task": task}), practice=practice)
        begun = []
        for seed in range(20):
            environment.reset(seed=seed)
            begun.append(environment.batch.seen.intent[0])
            environment.step(close)
            assert environment.world.commanded.gripper <= float(begun[-1] >= CLOSES_AT)
        assert (min(begun) < 0.2 and max(begun) > 0.8) if practice else not any(begun)
        environment.close()


def test_the_task_moves_with_the_table():
    lower = RobotEnvironmentConfig.model_validate(
        {
            "task": {"name": "grasp"},
            "robot": {"table_height_m": -0.05},
        }
    )
    environment = make_robot_env(lower)
    environment.reset(seed=0)
    for _ in range(10):
        environment.step(UP)
    assert environment.world.objects["object"].position[2] == pytest.approx(-0.03, abs=1e-3)
    assert environment.goal.position[2] == pytest.approx(-0.03 + 0.13, abs=1e-3)
    environment.close()


@pytest.mark.parametrize(
    ("arm", "gripper"),
    [("ur5e", "robotiq_2f85"), ("ur5e", "robotiq_hand_e"), ("ur10e", "robotiq_2f140"), ("fr3", "franka_hand")],
)
def test_a_tool_that_is_pushed_down_slides_over_the_table(arm, gripper, monkeypatch):
    monkeypatch.setattr(Grasp, "lowest", Task.lowest)  # which keeps open fingers above the object
    robot = {"arm": arm, "gripper": gripper}
    config = RobotEnvironmentConfig.model_validate({"robot": robot, "task": {"name": "grasp"}, "episode_s": 20.0})
    environment = make_robot_env(config)
    environment.reset(seed=0)
    spec = environment.robot.spec
    for _ in range(60):
        environment.step(np.array([0.0, 0.0, -1.0, 0.0, -1.0], np.float32))
    before = environment.world.commanded_tcp.position
    assert before[2] < spec.gripper.jaw.grasp_height_m
    aside = np.sign(before[0] - environment.world.objects["object"].position[0])
    for _ in range(20):
        environment.step(np.array([0.6 * aside, 0.0, -1.0, 0.5, -1.0], np.float32))
    assert abs(environment.world.commanded_tcp.position[0] - before[0]) > 0.05
    assert environment.guard.interventions["clearance"] == 0
    environment.close()


class OnlyASimulatorKnows(Grasp):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layout = Layout([*self.layout.fields, Field("pad_force", ("right", "left"), "N", "simulator")])


def test_a_field_that_only_a_simulator_knows_is_refused_on_hardware_by_name(monkeypatch):
    monkeypatch.setitem(TASKS._things, "grasp", OnlyASimulatorKnows)
    cell = CellConfig.model_validate(
        {"ur": {"host": "127.0.0.1"}, "taught": {"object": {"position_m": (0, 0.5, 0.02)}}}
    )
    with pytest.raises(ContractError, match="'pad_force', which only a simulator knows"):
        make_robot_env(CONFIG, cell=cell)
    assert make_robot_env(CONFIG).task.layout.size == make_robot_env(CONFIG).observation_space.shape[0]


class FailingObjects(Objects):
    """Objects whose tracker fails at the so-manieth reading of an episode, the first being at the reset."""

    def __init__(self, objects, failing, error):
        self.objects, self.failing, self.error = objects, failing, error
        self.reads = 0

    def arrange(self, poses):
        self.reads = 0
        return self.objects.arrange(poses)

    def read(self):
        self.reads += 1
        if self.reads == self.failing:
            raise self.error
        return self.objects.read()

    def truth(self):
        return self.objects.truth()


@pytest.fixture
def failing():
    """Make an environment whose tracker fails after so many steps, and count the stops of its arm."""
    made = []

    def make(steps, error=None):
        environment = make_robot_env(CONFIG)
        error = error or TrackerError("object 'object' was not seen for 0.31 s, more than tracker.max_age_s 0.2 s")
        failing = environment._objects = FailingObjects(environment._objects, steps + 1, error)
        batch = environment.batch
        batch.cells[0] = batch.cells[0]._replace(objects=failing)
        batch.memory._sources[0] = failing
        environment.stops, stop = 0, environment.robot.stop

        def counted():
            environment.stops += 1
            stop()

        environment.robot.stop = counted
        made.append(environment)
        return environment

    yield make
    for environment in made:
        environment._objects = environment._objects.objects
        environment.close()


@pytest.mark.parametrize("steps", [1, 8])
def test_a_tracker_that_fails_ends_the_episode_with_the_reason_and_the_arm_stands(failing, steps):
    environment = failing(steps)
    observation, _ = environment.reset(seed=0)
    for _ in range(steps - 1):
        observation, _, terminated, truncated, info = environment.step(UP)
        assert not terminated and not truncated and "fault" not in info
    assert environment.stops == 0
    last, reward, terminated, truncated, info = environment.step(UP)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["fault"] == "object 'object' was not seen for 0.31 s, more than tracker.max_age_s 0.2 s"
    assert info["success"] is False and info["is_success"] is False
    assert {"distance_m", "tcp_speed_m_s", "joint_speed_rad_s", "interventions", "reward_terms"} <= info.keys()
    np.testing.assert_array_equal(last, observation)  # nothing is invented
    assert environment.stops == 1
    # Nothing moves on: the arm comes to rest, and stays.
    for _ in range(20):
        environment.robot.advance()
    at = environment.robot.read().q
    environment.robot.advance()
    np.testing.assert_allclose(environment.robot.read().q, at, atol=1e-4)


def test_a_success_does_not_outlive_the_tracker(failing):
    environment = failing(3)
    environment.reset(seed=0)
    environment.step(UP)
    environment.step(UP)
    environment.batch._held[0], environment._last_info["success"] = 50, True
    *_, info = environment.step(UP)
    assert "fault" in info and info["success"] is False


def test_the_episode_after_a_fault_is_one_like_any_other(failing):
    environment, other = failing(3), make_robot_env(CONFIG)
    environment.reset(seed=0)
    for _ in range(3):
        environment.step(UP)
    environment._objects.failing = None
    np.testing.assert_array_equal(environment.reset(seed=9)[0], other.reset(seed=9)[0])
    for _ in range(5):
        (one, reward, *_), (same, expected, *_) = environment.step(UP), other.step(UP)
        np.testing.assert_array_equal(one, same)
        assert reward == expected
    other.close()


def test_evaluations_and_trainings_count_a_fault_as_a_failure(failing):
    environment = failing(1)
    figures = evaluate(environment, lambda observation: UP, 2, 0, seeding.Stream.EVALUATION_EPISODES)
    assert (figures.success_rate, figures.mean_steps) == (0.0, 1.0)
    assert np.isfinite(figures.mean_final_distance_m)
    alone = LocalEnvironments([failing(2)])
    alone._rows = SingleRows(alone.environments)  # as those of arms, whose trackers may fail
    collector = Collector(alone, 0, 1, 0.9)
    from td3robot.learning.replay import ReplayBuffer

    replay, finished = ReplayBuffer(10, environment.observation_space.shape[0], 5), []
    for _ in range(3):
        collector.start(UP[None])
        taken = collector.advance(collector.finish())
        replay.add(taken.transitions)
        finished += taken.finished
    assert [(episode["steps"], episode["success"]) for episode in finished] == [(2.0, 0.0)]


def test_an_arm_that_fails_while_it_is_read_is_stopped(failing):
    environment = failing(2, error=RobotError("the controller no longer reports"))
    environment.reset(seed=0)
    environment.step(UP)
    with pytest.raises(RobotError, match="no longer reports"):
        environment.step(UP)
    assert environment.stops == 1


def test_a_tracker_that_fails_before_the_first_step_is_an_error_not_an_episode(failing):
    environment = failing(0)
    with pytest.raises(TrackerError):
        environment.reset(seed=0)
