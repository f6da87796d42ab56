"""What an environment promises about the arm behind it: when it is told to stop, and what is never sent."""

import numpy as np
import pytest

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import CommandRefusedError, ConfigError, EnvironmentFaultError, RobotError

REACH = RobotEnvironmentConfig.model_validate({"robot": {"backend": "kinematic"}, "episode_s": 1.0})
STILL, ACTION = np.zeros(3, np.float32), np.array([0.2, -0.1, 0.3], np.float32)


class Counted:
    """Count the calls of an object's method, and let it fail when asked to."""

    def __init__(self, owner, name):
        self.calls, self.error, self._method = 0, None, getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *arguments):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self._method(*arguments)


@pytest.fixture
def environment(begun):
    return begun(REACH)


@pytest.mark.parametrize("where", ["guard.decide", "robot.now", "robot.send", "robot.advance", "robot.read"])
def test_the_arm_is_told_to_stop_when_a_period_fails(environment, where):
    owner, name = where.split(".")
    stop = Counted(environment.robot, "stop")
    failing = Counted(getattr(environment, owner), name)
    environment.step(ACTION)
    assert stop.calls == 0
    failing.error = RobotError(f"{name} failed")
    with pytest.raises(RobotError, match=f"{name} failed"):
        environment.step(ACTION)
    assert stop.calls == 1


def test_who_watches_can_end_a_period_and_the_arm_is_told_to_stop(environment):
    def watch(desired, decision, sent):
        raise RobotError("enough")

    stop, advance = Counted(environment.robot, "stop"), Counted(environment.robot, "advance")
    environment.watch = watch
    with pytest.raises(RobotError, match="enough"):
        environment.step(ACTION)
    assert (stop.calls, advance.calls) == (1, 0)


def test_who_watches_sees_what_was_asked_ruled_and_sent(environment):
    seen = []
    environment.watch = lambda *arguments: seen.append(arguments)
    commanded = environment.guard.commanded
    environment.step(ACTION)
    ((desired, decision, sent),) = seen
    np.testing.assert_array_equal(decision.command.q, environment.guard.commanded.q)
    np.testing.assert_array_equal(sent.q, decision.command.q)
    np.testing.assert_array_equal(environment.world.commanded.q, sent.q)
    moved = environment.action_kind.move(ACTION[None], commanded.q[None], np.zeros((1, 6)), np.full(1, -np.inf))
    np.testing.assert_array_equal(desired.q, commanded.q + moved[0])
    assert desired.gripper == environment.goal.gripper


def test_a_refused_command_is_never_sent_and_time_stands(environment):
    send, advance = Counted(environment.robot, "send"), Counted(environment.robot, "advance")
    stop = Counted(environment.robot, "stop")
    batch = environment.batch
    batch.seen = batch.seen._replace(stamp=batch.seen.stamp - 1.0)
    with pytest.raises(CommandRefusedError, match="old"):
        environment.step(ACTION)
    assert (send.calls, advance.calls, stop.calls) == (0, 0, 1)


@pytest.mark.parametrize("action", [np.full(3, np.nan), np.zeros(2), np.full(3, np.inf)])
def test_an_action_that_cannot_be_is_not_sent_and_leaves_the_episode_as_it_was(environment, action):
    send = Counted(environment.robot, "send")
    with pytest.raises(EnvironmentFaultError, match=r"is not 3 finite numbers in \[-1, 1\]; nothing was sent"):
        environment.step(action)
    assert send.calls == 0
    after = environment.step(ACTION)[0]
    other = make_robot_env(REACH)
    other.reset(seed=0)
    np.testing.assert_array_equal(after, other.step(ACTION)[0])


def test_actions_are_between_minus_one_and_one(environment):
    np.testing.assert_array_equal(environment.action_space.low, -1.0)
    np.testing.assert_array_equal(environment.action_space.high, 1.0)


def test_an_action_is_clipped_component_by_component_and_may_be_a_list(environment):
    after = environment.step([5.0, 0.5, -3.0])[0]
    environment.reset(seed=0)
    np.testing.assert_array_equal(environment.step(np.array([1.0, 0.5, -1.0], np.float32))[0], after)


def test_an_action_is_rough_by_how_far_it_is_from_the_one_before(environment):
    terms = [environment.step(action)[-1]["reward_terms"]["smoothness"] for action in (ACTION, ACTION, -ACTION, STILL)]
    assert terms[1] == 0.0
    assert terms[0] == terms[3] < 0.0
    assert terms[2] < terms[0]


def test_the_figures_are_those_of_the_arm(environment):
    for _ in range(5):
        *_, info = environment.step(ACTION)
    world = environment.world
    assert info["tcp_speed_m_s"] == pytest.approx(np.linalg.norm(world.tcp_velocity))
    assert info["joint_speed_rad_s"] == np.abs(world.robot.dq).max()
    assert min(info["tcp_speed_m_s"], info["joint_speed_rad_s"]) > 0.005
    assert info["distance_m"] == pytest.approx(np.linalg.norm(environment.goal.position - world.tcp.position))


def test_after_a_pause_the_arm_continues_from_where_it_rests(environment):
    for _ in range(6):
        environment.step(ACTION)
    environment.robot.stop()
    goal, gripper = environment.goal, environment.guard.commanded.gripper
    observation = environment.resume()
    resting = environment.robot.read().q
    np.testing.assert_array_equal(environment.guard.commanded.q, resting)
    np.testing.assert_array_equal(environment.guard.velocity, 0.0)
    np.testing.assert_array_equal(environment.world.commanded.q, resting)
    assert environment.guard.commanded.gripper == gripper and environment.goal is goal
    assert environment.observation_space.contains(observation)
    # What was asked for before the pause is not held against what is asked for after it.
    *_, info = environment.step(STILL)
    assert info["reward_terms"]["smoothness"] == 0.0


def test_a_success_needs_the_goal_held_without_a_break(environment):
    """The count of moments at the goal starts anew with each episode, and with each moment away from it."""
    hold = environment.task.hold_steps
    environment.batch._held[0] = hold
    *_, info = environment.step(np.ones(3, np.float32))
    assert not info["success"]
    environment.batch._held[0] = hold
    environment.reset(seed=0)
    *_, info = environment.step(STILL)
    assert not info["success"]


def test_steps_are_counted_anew_in_every_episode(environment):
    for _ in range(2):
        lengths = [environment.step(STILL)[3] for _ in range(20)]
        assert lengths == [False] * 19 + [True]
        environment.reset()


def test_a_given_goal_takes_the_place_of_the_drawn_one_alone(environment):
    environment.reset(seed=4)
    drawn, start = environment.goal, environment.robot.read().q
    environment.reset(seed=4, options={"goal": (0.1, 0.5, 0.2)})
    np.testing.assert_array_equal(environment.goal.position, [0.1, 0.5, 0.2])
    np.testing.assert_array_equal(environment.robot.read().q, start)
    assert environment.goal.gripper == drawn.gripper


@pytest.mark.parametrize(
    ("goal", "named"),
    [
        ((0.1, 0.5), r"the goal \[0\.1, 0\.5\] m is outside"),
        ((0.31, 0.5, 0.2), r"outside \(-0\.3, 0\.25, 0\.05\)\.\.\(0\.3, 0\.75, 0\.45\) m, for which the policy was"),
        ((0.1, 0.24, 0.2), "outside"),
        ((np.nan, 0.5, 0.2), "outside"),
    ],
)
def test_a_goal_that_the_policy_was_not_trained_for_is_refused(environment, goal, named):
    with pytest.raises(ConfigError, match=named):
        environment.reset(seed=0, options={"goal": goal})


def test_a_goal_that_cannot_be_reached_is_refused(environment):
    environment.initial._goals = REACH.task.goals.model_copy(update={"high": (0.3, 2.0, 0.45)})
    with pytest.raises(ConfigError, match="cannot be reached: no inverse kinematics"):
        environment.reset(seed=0, options={"goal": (0.0, 1.5, 0.2)})


def test_a_goal_that_is_an_object_cannot_be_given():
    environment = make_robot_env(RobotEnvironmentConfig.model_validate({"task": {"name": "grasp"}}))
    with pytest.raises(ConfigError, match="is where its object lies, and cannot be given"):
        environment.reset(seed=0, options={"goal": (0.0, 0.5, 0.2)})


def test_an_episode_may_begin_where_the_arm_stands(environment):
    for _ in range(8):
        environment.step(ACTION)
    environment.robot.stop()
    standing, moved = environment.robot.read(), Counted(environment.robot, "move_to")
    environment.reset(seed=1, options={"stay": True})
    np.testing.assert_array_equal(environment.guard.commanded.q, standing.q)
    closed = standing.driver_q.mean() / environment.robot.spec.gripper.driver_closed
    assert environment.goal.gripper == environment.guard.commanded.gripper == pytest.approx(closed)
    assert moved.calls == 0
    environment.reset(seed=1, options={"stay": False})
    assert moved.calls == 1


@pytest.mark.parametrize(("joint", "turn"), [("wrist_3_joint", np.pi / 2), ("wrist_3_joint", np.pi)])
def test_an_arm_in_a_posture_that_training_never_had_begins_no_episode(environment, joint, turn):
    names = environment.robot.spec.arm.joint_names
    q = environment.robot.spec.arm.home.copy()
    q[names.index(joint)] += turn
    environment.robot.move_to(q)
    with pytest.raises(RobotError, match=rf"no episode of training began: {joint} is at .*without a given goal"):
        environment.reset(seed=0, options={"stay": True})


def test_an_arm_with_its_wrist_flipped_begins_no_episode(environment):
    q = environment.robot.spec.arm.home * np.array([1, 1, 1, 1, -1, 1]) + np.array([0, 0, 0, np.pi, 0, np.pi])
    environment.robot.move_to(q)
    with pytest.raises(RobotError, match="no episode of training began: wrist_"):
        environment.reset(seed=0, options={"stay": True})


def test_an_arm_that_stands_outside_the_limits_begins_no_episode(environment):
    behind = environment.robot.spec.arm.home + np.array([np.pi, 0, 0, 0, 0, 0])
    environment.robot.move_to(behind)
    with pytest.raises(RobotError, match=r"the guard's limit 'workspace' keeps it from moving .*by hand, in freedrive"):
        environment.reset(seed=0, options={"stay": True})
    with pytest.raises(EnvironmentFaultError, match="before reset"):
        environment.step(STILL)


def test_draws_without_any_start_are_given_up_with_the_last_objection(environment):
    environment.initial.posture_at = lambda position, wanted=None: (None, "the guard's limit: clearance")
    with pytest.raises(
        ConfigError,
        match=r"no admissible start .* 100 draws \(the last: the tool at the goal, the guard's limit: clearance",
    ):
        environment.reset(seed=0)


def test_the_tool_is_where_the_arm_would_be(environment):
    q = environment.robot.spec.arm.home
    np.testing.assert_allclose(environment.tool_at(q).position, environment.robot.kinematics.tcp(q).position, atol=1e-6)
    assert environment.find_objects() == {}


def test_closing_lets_go_of_robot_objects_and_pictures(environment):
    class Pictures:
        closed = 0

        def close(self):
            self.closed += 1

    pictures = environment._renderer = Pictures()
    robot, objects = Counted(environment.robot, "close"), Counted(environment._objects, "close")
    environment.close()
    environment.close()
    assert (robot.calls, objects.calls, pictures.closed) == (2, 2, 1)
    with pytest.raises(EnvironmentFaultError, match=r"step\(\) was called before reset\(\)"):
        environment.step(STILL)


@pytest.mark.parametrize("rate_hz", [20.0, 25.0])
def test_pictures_come_at_the_control_rate(rate_hz):
    config = {"robot": {"backend": "kinematic", "control_rate_hz": rate_hz}}
    environment = make_robot_env(RobotEnvironmentConfig.model_validate(config), render_mode="rgb_array")
    assert environment.render_mode == "rgb_array"
    assert environment.metadata == {"render_modes": ["rgb_array"], "render_fps": rate_hz}
    assert make_robot_env(RobotEnvironmentConfig.model_validate(config)).render_mode is None


def test_a_picture_shows_the_arm_and_its_goal_and_its_maker_is_asked_once(environment):
    drawn, made = [], []

    class Pictures:
        def __init__(self):
            made.append(self)

        def become(self, models):
            assert models == {}

        def draw(self, world, goal):
            drawn.append((world, goal))
            return "picture"

        def close(self):
            pass

    assert environment.render() is None
    environment._make_renderer = Pictures
    for _ in range(2):
        environment.step(ACTION)
        assert environment.render() == "picture"
        assert drawn[-1][0].robot.stamp == environment.world.robot.stamp and drawn[-1][1] is environment.goal.position
    assert len(made) == 1
