"""The simulated 2F-85 can be trusted: its linkage stays whole under cycles and impacts, and what it holds stays put."""

import mujoco
import numpy as np
import pytest

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import RobotConfig, RobotEnvironmentConfig
from td3robot.config.objects import ObjectConfig
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.scene import GRIPPER_PREFIX, TCP_SITE
from td3robot.robots.toolbox import ToolboxKinematics
from td3robot.state import JointCommand, ObjectModel, Pose
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.scripted import scripted_grasp

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
SPOT = np.array([0.1, 0.5, 0.02])
# The fingers' ends are 18 mm beyond the tool centre point when closed, 4 mm when open.
HEIGHTS = {"free": 0.25, "around the cube": 0.026, "on the cube": 0.05, "on the table": 0.012}


@pytest.fixture(scope="module")
def cell():
    robot = MujocoRobot(robot_spec(RobotConfig()), RobotConfig().physics_rate_hz, (CUBE,))
    robot.connect()
    yield robot
    robot.close()


@pytest.fixture(scope="module")
def postures(cell, kinematics):
    """The arm's postures over a spot, at every height, and 60 mm beside the cube's spot."""
    ik, home = ToolboxKinematics(cell.spec), cell.spec.arm.home
    down = kinematics.tcp(home).rotation
    return {
        (name, side): ik.inverse(np.array([SPOT[0] + side, SPOT[1], height]), home, down)
        for name, height in HEIGHTS.items()
        for side in (0.0, 0.06)
    }


def send(robot, q, gripper, periods):
    for _ in range(periods):
        robot.send(JointCommand(q, gripper))
        robot.advance()


def assert_whole(robot):
    """Hold the linkage to finite numbers, no complaint of MuJoCo's, and drivers that agree."""
    data = robot.data
    assert np.isfinite(data.qpos).all() and np.isfinite(data.qvel).all() and np.isfinite(data.qacc).all()
    assert [warning.number for warning in data.warning] == [0] * len(data.warning)
    right, left = robot.read().driver_q
    assert abs(right - left) < 0.02
    assert -0.02 < right < 0.85


def hardest_contact(robot):
    """Give the largest normal force of any contact [N]."""
    force, found = np.zeros(6), [0.0]
    for contact in range(robot.data.ncon):
        mujoco.mj_contactForce(robot.model, robot.data, contact, force)
        found.append(force[0])
    return max(found)


def cycles(robot, postures, count, seed):
    """Open and close to random widths for random times, in the air, on the cube and against it and the table.

    Every other reversal comes before the fingers have arrived. No guard is here: the fingers hit what they hit.
    """
    rng = np.random.default_rng(seed)
    robot.move_to(postures["free", 0.0])
    robot.place({"object": Pose(SPOT, np.eye(3))})
    hardest = 0.0
    for _ in range(count):
        q = postures[list(HEIGHTS)[rng.integers(len(HEIGHTS))], (0.0, 0.06)[rng.integers(2)]]
        start = robot.data.act[: len(q)].copy()
        arm = rng.random() < 0.3
        for target in (1.0, 0.0) if rng.random() < 0.5 else rng.random(2):
            periods = int(rng.integers(1, 4) if rng.random() < 0.5 else rng.integers(4, 10))
            for k in range(periods):
                # A move of a quarter of a second, or nothing.
                share = min(1.0, (k + 1) / 5) if arm else 0.0
                send(robot, start + share * (q - start), target, 1)
                hardest = max(hardest, hardest_contact(robot))
        assert_whole(robot)
        # The cube is put back where it was knocked away.
        if np.linalg.norm(robot.object_poses()["object"].position[:2] - SPOT[:2]) > 0.1:
            send(robot, postures["free", 0.0], 0.0, 5)
            robot.place({"object": Pose(SPOT, np.eye(3))})
    return hardest


def assert_opens_and_closes(robot, postures):
    """Hold open and closed drivers to where they belong."""
    send(robot, postures["free", 0.06], 0.0, 40)
    np.testing.assert_allclose(robot.read().driver_q, 0.0, atol=0.01)
    send(robot, postures["free", 0.06], 1.0, 40)
    np.testing.assert_allclose(robot.read().driver_q, robot.spec.gripper.driver_closed, atol=0.03)
    send(robot, postures["free", 0.06], 0.0, 40)
    np.testing.assert_allclose(robot.read().driver_q, 0.0, atol=0.01)
    assert_whole(robot)


def test_the_linkage_stands_a_hundred_cycles_and_impacts(cell, postures):
    hardest = cycles(cell, postures, 100, seed=0)
    assert hardest > 50.0  # [N]: they were impacts
    assert_opens_and_closes(cell, postures)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_linkage_stands_ten_thousand_cycles_and_impacts(cell, postures, seed):
    cycles(cell, postures, 2500, seed)
    assert_opens_and_closes(cell, postures)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_reversals_faster_than_the_fingers_leave_the_linkage_whole(cell, postures, period):
    cell.move_to(postures["free", 0.06])
    for k in range(120 // period):
        send(cell, postures["free", 0.06], float(k % 2), period)
        assert_whole(cell)
    assert_opens_and_closes(cell, postures)


def test_driving_closed_fingers_onto_the_table_and_the_cube_breaks_nothing(cell, postures):
    for name, side in (("on the table", 0.06), ("on the cube", 0.0), ("around the cube", 0.0)):
        for closed in (0.0, 1.0):
            cell.move_to(postures["free", side])
            cell.place({"object": Pose(SPOT, np.eye(3))})
            send(cell, postures["free", side], closed, 15)
            start, deep = postures["free", side], postures[name, side]
            for k in range(40):
                send(cell, start + min(1.0, (k + 1) / 20) * (deep - start), closed, 1)
                assert_whole(cell)
            send(cell, start, closed, 20)
            np.testing.assert_allclose(cell.read().q, start, atol=0.02)


def pads(robot):
    """Where the pads are in the tool's frame, right and left (2, 3) [m]."""
    site = robot.data.site(TCP_SITE)
    places = []
    for side in ("right", "left"):
        body = robot.data.body(f"{GRIPPER_PREFIX}{side}_pad")
        places.append(site.xmat.reshape(3, 3).T @ (body.xpos - site.xpos))
    return np.array(places)


def test_the_pads_close_along_the_tool_s_x_axis(cell, postures):
    cell.move_to(postures["free", 0.06])
    send(cell, postures["free", 0.06], 0.0, 20)
    right, left = wide = pads(cell)
    np.testing.assert_allclose(wide[:, 1], 0.0, atol=1e-3)
    np.testing.assert_allclose(right[0], -left[0], atol=1e-3)
    send(cell, postures["free", 0.06], 1.0, 40)
    moved = pads(cell) - wide
    np.testing.assert_allclose(moved[:, 1], 0.0, atol=1e-3)
    # 85 mm of stroke (Robotiq's data sheet), half of it each.
    np.testing.assert_allclose(np.abs(moved[:, 0]), 0.0425, atol=0.003)
    assert (np.sign(moved[:, 0]) == -np.sign(wide[:, 0])).all()


def test_closing_on_the_cube_stops_where_its_width_says(cell, postures):
    cell.move_to(postures["around the cube", 0.0])
    cell.place({"object": Pose(SPOT, np.eye(3))})
    send(cell, postures["around the cube", 0.0], 1.0, 40)
    closed = cell.read().driver_q / cell.spec.gripper.driver_closed
    # (85 - 40) / 85 mm; the linkage is not quite linear.
    np.testing.assert_allclose(closed, 45 / 85, atol=0.05)
    assert np.linalg.norm(cell.object_poses()["object"].position - SPOT) < 0.003


@pytest.mark.parametrize(
    "item",
    [
        ObjectConfig(),
        ObjectConfig(mass_kg=0.3, friction=0.5),
        ObjectConfig(shape="cylinder", size_m=(0.05, 0.05, 0.06)),
    ],
    ids=["cube", "heavy and slippery", "cylinder"],
)
def test_what_is_held_creeps_less_than_a_millimetre_in_five_seconds(item):
    config = RobotEnvironmentConfig(task=GraspConfig(object=item), episode_s=12.0)
    environment = make_robot_env(config)
    script = scripted_grasp(environment.task.layout, config.task, config.action, environment.robot.spec, 0.25)
    observation, _ = environment.reset(seed=2)
    for _ in range(120):
        observation, *_, info = environment.step(script.act(observation))
    assert info["success"]
    still = np.array([0, 0, 0, 0, 1], np.float32)
    in_hand = []
    for _ in range(100):
        in_hand.append(held_at(environment))
        environment.step(still)
    creep = np.linalg.norm(np.array(in_hand) - in_hand[0], axis=1)
    environment.close()
    assert creep.max() < 0.001
    assert [w.number for w in environment.robot.data.warning] == [0] * len(environment.robot.data.warning)


def held_at(environment):
    """Where the object is in the tool's frame [m]."""
    world = environment.world
    return world.tcp.rotation.T @ (world.objects["object"].position - world.tcp.position)


def test_the_servo_s_step_is_the_one_that_was_tested(cell):
    assert cell.model.opt.timestep == 1 / 400
    assert cell.model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert cell.model.opt.impratio == 10
