from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.errors import RobotError
from td3robot.robots.guard import Guard
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.travel import NEAR_RAD, SPEED_SHARE, Travel
from td3robot.simulators.arm import SimulatedArm
from td3robot.simulators.motion import Reference, Servo
from td3robot.simulators.presets import ServoModel, ToolModel
from td3robot.state import JointCommand

CONFIG = GuardConfig()
WAY = CONFIG.scaled(SPEED_SHARE)


class Walker(MujocoRobot):
    """A simulated arm that has to travel, as hardware does, and keeps what was sent."""

    teleports: ClassVar[bool] = False

    def __init__(self, spec):
        super().__init__(spec, 400.0)
        self.sent, self.holding, self.stops, self.stuck = [], False, 0, False

    @property
    def holds(self):
        return self.holding

    def _send(self, command):
        self.sent.append(command)
        super()._send(JointCommand(self.spec.arm.home, 0.0) if self.stuck else command)

    def stop(self):
        self.stops += 1
        super().stop()


@pytest.fixture(scope="module")
def geometry():
    spec = robot_spec(RobotConfig())
    return spec, Kinematics(spec, CONFIG.clearance_m)


@pytest.fixture
def walker(geometry):
    robot = Walker(geometry[0])
    robot.connect()
    yield robot
    robot.close()


@pytest.fixture
def travel(geometry, walker):
    spec, kinematics = geometry
    return Travel(walker, Guard(spec, CONFIG, kinematics))


def postures(geometry, count, seed=0):
    """Draw postures that the guard admits, with the tool in its workspace."""
    spec, kinematics = geometry
    guard, rng, found = Guard(spec, CONFIG, kinematics), np.random.default_rng(seed), []
    while len(found) < count:
        q = kinematics.inverse(rng.uniform((-0.4, 0.25, 0.05), (0.4, 0.7, 0.5)), spec.arm.home)
        if q is not None and guard.admits(q) is None:
            found.append(q)
    return found


def test_what_is_held_is_lowered_straight_down_and_let_go(geometry, walker, travel):
    spec, kinematics = geometry
    travel.to(kinematics.inverse(np.array([0.1, 0.5, 0.2]), spec.arm.home))
    travel.grip(1.0)
    walker.sent.clear()
    travel.put_down(0.12)
    tools = np.array([kinematics.tcp(command.q).position for command in walker.sent])
    closed = np.array([command.gripper for command in walker.sent])
    lowest = int(tools[:, 2].argmin())
    assert tools[lowest, 2] == pytest.approx(0.08, abs=0.003)
    assert np.abs(tools[:, :2] - tools[0, :2]).max() < 0.004
    assert (closed[:lowest] == closed[:lowest].max()).mean() > 0.9
    assert closed[lowest:].min() == 0.0
    assert kinematics.tcp(walker.read().q).position[2] == pytest.approx(0.2, abs=0.003)
    assert walker.read().driver_q.max() < 0.1


def test_what_the_gripper_carries_stays_in_it_on_a_way_that_does_not_open_it(geometry, walker, travel):
    spec, kinematics = geometry
    travel.grip(0.6)
    walker.holding = True
    walker.sent.clear()
    travel.to(kinematics.inverse(np.array([0.1, 0.5, 0.2]), spec.arm.home), opens=False)
    assert min(command.gripper for command in walker.sent) > 0.5
    assert spec.gripper.closed_fraction(walker.read().driver_q) > 0.5


def test_a_drop_into_the_table_ends_where_the_guard_does(geometry, walker, travel):
    spec, kinematics = geometry
    down = kinematics.tcp(spec.arm.home).rotation
    travel.to(kinematics.inverse(np.array([0.1, 0.5, 0.1]), spec.arm.home, down))
    walker.sent.clear()
    travel.put_down(0.5)
    lowest = min(kinematics.tcp(command.q).position[2] for command in walker.sent)
    assert 0.02 <= lowest < 0.05
    assert walker.read().driver_q.max() < 0.1


def test_it_arrives_at_rest_within_a_share_of_every_limit(geometry, walker, travel):
    spec, kinematics = geometry
    for q in postures(geometry, 6):
        walker.sent.clear()
        start = walker.read().q
        rest = travel.to(q)
        state = walker.read()
        np.testing.assert_allclose(state.q, q, rtol=0, atol=NEAR_RAD)
        np.testing.assert_array_equal(rest, state.q)
        assert np.abs(state.dq).max() < 0.01
        path = np.array([start, *(command.q for command in walker.sent)])
        velocity = np.diff(path, axis=0) * spec.control_rate_hz
        assert np.abs(velocity).max() <= (spec.arm.velocity * WAY.joint_speed_fraction).max() * (1 + 1e-9)
        change = np.diff(np.vstack([np.zeros(6), velocity]), axis=0)
        limit = WAY.max_joint_acceleration_rad_s2 * spec.period_s
        assert np.abs(change).max() <= limit * (1 + 1e-9)
        tool = np.array([kinematics.tcp(q).position for q in path])
        speed = np.linalg.norm(np.diff(tool, axis=0), axis=1) * spec.control_rate_hz
        assert 0.9 * WAY.max_tcp_speed_m_s < speed.max() <= WAY.max_tcp_speed_m_s
        assert np.abs(path - q).max() <= np.abs(start - q).max() + 0.03 or len(travel._plan(start, q)[0]) > 1


class Overshooting:
    """What an arm makes of commands whose joints overshoot, as the stand-in simulates one: 100 targets a second."""

    TARGETS, TICKS = 5, 5

    def __init__(self, spec):
        self.arm = SimulatedArm(spec, tool=ToolModel(payload_kg=0.3, longer_m=0.002))
        self.model = ServoModel(damping=(0.58,) * 6, transport_s=0.012)

    def fastest_tool(self, start, commands):
        """Return the fastest tool speed on a way that begins at rest [m/s]."""
        self.arm.reset(start)
        servo, reference, fastest = Servo(start, self.model), Reference(start), 0.0
        for before, command in pairwise([start, *commands, *commands[-1:] * 10]):
            for target in np.linspace(before, command, self.TARGETS + 1)[1:]:
                servo.aim(target, 0.05 / self.TARGETS)
                for _ in range(self.TICKS):
                    servo.step(reference, 1.0)
                    self.arm.step(reference.q, 0.0, reference.v, reference.a)
                    fastest = max(fastest, float(np.linalg.norm(self.arm.tcp_velocity()[:3])))
        return fastest


def test_joints_that_overshoot_stay_below_the_tool_speed_limit_on_a_way(geometry, walker, travel):
    """At the whole of the limits they reached 288 mm/s."""
    spec, *_ = geometry
    arm = Overshooting(spec)
    for q in postures(geometry, 4, seed=7):
        walker.sent.clear()
        start = walker.read().q
        travel.to(q)
        assert WAY.max_tcp_speed_m_s < arm.fastest_tool(start, [command.q for command in walker.sent]) < 0.95 * 0.25


def test_a_blocked_straight_way_goes_by_way_of_home(geometry, walker, travel):
    """A wall between left and right, lower than home."""
    spec, kinematics = geometry

    class Walled(Kinematics):
        def too_close(self, q):
            x, _, z = self.tcp(q).position
            return (abs(x) < 0.03 and z < 0.16) or super().too_close(q)

    travel = Travel(walker, Guard(spec, CONFIG, Walled(spec, CONFIG.clearance_m)))
    left, right = (kinematics.inverse(np.array([x, 0.4, 0.08]), spec.arm.home) for x in (-0.3, 0.3))
    travel.to(left)
    way, _ = travel._plan(walker.read().q, right)
    assert len(way) >= 2
    np.testing.assert_array_equal(way[-2], spec.arm.home)
    travel.to(right)
    np.testing.assert_allclose(walker.read().q, right, rtol=0, atol=NEAR_RAD)


def test_a_way_that_is_blocked_names_the_limit_and_nothing_moves(geometry, walker, travel):
    behind = geometry[0].arm.home + np.array([np.pi, 0, 0, 0, 0, 0])
    with pytest.raises(RobotError, match=r"blocked by the guard's limit 'workspace'.*by hand"):
        travel.to(behind)
    assert walker.sent == []


def test_an_arm_outside_the_limits_says_so_and_nothing_moves(geometry, walker, travel):
    walker.move_to(geometry[0].arm.home + np.array([np.pi, 0, 0, 0, 0, 0]))
    with pytest.raises(RobotError, match=r"stands where the guard's limit 'workspace' keeps it from moving"):
        travel.to(geometry[0].arm.home)
    assert walker.sent == []


def test_an_arm_that_is_held_is_noticed_and_stopped(geometry, walker, travel):
    walker.stuck = True
    stops = walker.stops
    with pytest.raises(RobotError, match=r"came no nearer than .* for 2 s.*the guard's limit"):
        travel.to(postures(geometry, 1)[0])
    assert walker.stops > stops


def test_the_gripper_opens_first_and_only_when_agreed(geometry, walker, travel):
    home = geometry[0].arm.home
    for _ in range(30):
        walker.send(JointCommand(home, 1.0))
        walker.advance()
    walker.sent.clear()
    goal = postures(geometry, 1)[0]

    walker.holding = True
    with pytest.raises(RobotError, match="holds something that it would drop"):
        travel.to(goal)
    assert walker.sent == []

    class RefusedError(Exception):
        pass

    def refuse(journey):
        raise RefusedError

    travel.agree = refuse
    with pytest.raises(RefusedError):
        travel.to(goal)
    assert walker.sent == []

    asked = []
    travel.agree = asked.append
    travel.to(goal)
    assert asked[0].opens_gripper and asked[0].drops
    moving = next(i for i, command in enumerate(walker.sent) if not np.allclose(command.q, home, rtol=0, atol=1e-4))
    assert moving > 1
    np.testing.assert_allclose(walker.read().driver_q, 0.0, atol=0.05)


def test_who_watches_can_end_it_and_the_arm_is_stopped(geometry, walker, travel):
    periods = []

    def watch(state, ruling):
        periods.append((state, ruling))
        if len(periods) == 5:
            raise KeyboardInterrupt

    travel.watch = watch
    stops = walker.stops
    with pytest.raises(KeyboardInterrupt):
        travel.to(postures(geometry, 1)[0])
    assert len(periods) == 5 and walker.stops == stops + 1


def test_an_environment_travels_where_the_robot_does_not_teleport(monkeypatch):
    monkeypatch.setattr("td3robot.build.MujocoRobot", lambda spec, *_: Walker(spec))
    environment = make_robot_env(RobotEnvironmentConfig(episode_s=1.0))
    for seed in range(2):
        environment.reset(seed=seed)
        assert len(environment.robot.sent) > 10  # it went there, and was not placed
        environment.robot.sent.clear()
        world = environment.world
        np.testing.assert_allclose(world.tcp.position, environment.goal.start, rtol=0, atol=0.01)
        np.testing.assert_array_equal(world.commanded.q, world.robot.q)
        stops, truncated = environment.robot.stops, False
        while not truncated:
            *_, truncated, _ = environment.step(np.full(3, 0.5, np.float32))
        assert environment.robot.stops == stops + 1
    environment.close()
