import mujoco
import numpy as np
import pytest

from td3robot.robots.arms import ARMS
from td3robot.robots.grippers import GRIPPERS
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.scene import (
    FLANGE_SITE,
    GRIPPER_PREFIX,
    TABLE_GEOM,
    TCP_SITE,
    gripper_envelope,
    set_gripper,
    simulation_spec,
)
from td3robot.state import JointCommand

PADS = ("right_pad", "left_pad")


@pytest.fixture(scope="module")
def model(spec):
    return simulation_spec(spec, physics_rate_hz=400.0).compile()


def placed(model, q, drivers):
    data = mujoco.MjData(model)
    data.qpos[: len(q)] = q
    set_gripper(model, data, GRIPPERS["robotiq_2f85"], np.array(drivers))
    mujoco.mj_kinematics(model, data)
    return data


def test_arm_joints_come_first_and_by_name(spec, model):
    names = [model.joint(index).name for index in range(len(spec.arm.joint_names))]
    assert names == list(spec.arm.joint_names)
    assert model.jnt_qposadr[: len(names)].tolist() == list(range(len(names)))


def test_joint_limits_are_those_of_the_model(spec, model):
    joints = len(spec.arm.home)
    limits = np.stack([spec.arm.lower, spec.arm.upper], axis=1)
    np.testing.assert_allclose(model.jnt_range[:joints], limits, rtol=0, atol=1e-4)
    np.testing.assert_allclose(model.actuator_ctrlrange[:joints], limits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_an_arm_model_is_of_one_size_and_its_home_is_legal(arm):
    sizes = {len(x) for x in (arm.joint_names, arm.lower, arm.upper, arm.velocity, arm.servo.stiffness)}
    assert sizes == {len(arm.home)} == {arm.chain.joints}
    assert (arm.lower < arm.home).all() and (arm.home < arm.upper).all()
    assert (arm.velocity > 0).all()


@pytest.mark.parametrize("name", [*ARMS, *GRIPPERS])
def test_models_are_listed_under_their_own_name(name):
    assert {**ARMS, **GRIPPERS}[name].name == name


def test_driver_range_is_that_of_the_model(spec, model):
    for name in spec.gripper.driver_names:
        joint = model.joint(GRIPPER_PREFIX + name)
        np.testing.assert_allclose(joint.range, [0.0, spec.gripper.driver_closed])


def test_tool_offset_is_along_the_flange(spec, model):
    data = placed(model, spec.arm.home, [0.0, 0.0])
    flange, tool = data.site(FLANGE_SITE), data.site(TCP_SITE)
    axis = flange.xmat.reshape(3, 3)[:, 2]
    np.testing.assert_allclose(tool.xpos - flange.xpos, spec.tcp_offset_m * axis, atol=1e-9)


# The pads move along the flange's axis on their way, 14 mm from open to closed: what is held is at most 3 cm wide.
@pytest.mark.parametrize("driver", [0.6, 0.7, 0.8])
def test_tool_centre_point_is_between_the_pads_where_they_hold_something(spec, model, driver):
    data = placed(model, spec.arm.home, [driver, driver])
    boxes = [data.geom(f"{GRIPPER_PREFIX}{side}_pad{n}").xpos for side in ("right", "left") for n in (1, 2)]
    np.testing.assert_allclose(np.mean(boxes, axis=0), data.site(TCP_SITE).xpos, rtol=0, atol=1.5e-3)


def test_home_points_the_tool_down_in_front_of_the_arm(spec, model):
    tool = placed(model, spec.arm.home, [0.0, 0.0]).site(TCP_SITE)
    np.testing.assert_allclose(tool.xmat.reshape(3, 3)[:, 2], [0, 0, -1], atol=1e-9)
    assert tool.xpos[1] > 0.3


def test_table_top_is_at_its_height(spec, model):
    table = model.geom(TABLE_GEOM)
    assert table.pos[2] + table.size[2] == pytest.approx(spec.table_height_m)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.75, 0.95])
def test_set_gripper_agrees_with_the_settled_linkage(spec, model, fraction):
    robot = MujocoRobot(spec, physics_rate_hz=400.0)
    robot.connect()
    for _ in range(40):
        robot.send(JointCommand(spec.arm.home, fraction))
        robot.advance()
    state = robot.read()
    still = placed(model, state.q, state.driver_q)
    assert state.driver_q == pytest.approx(fraction * spec.gripper.driver_closed, abs=0.01)
    mujoco.mj_kinematics(robot.model, robot.data)
    for pad in PADS:
        simulated, set_up = robot.data.body(GRIPPER_PREFIX + pad), still.body(GRIPPER_PREFIX + pad)
        np.testing.assert_allclose(simulated.xpos, set_up.xpos, rtol=0, atol=1e-3)
        np.testing.assert_allclose(simulated.xmat, set_up.xmat, rtol=0, atol=0.04)
    robot.close()


def test_gripper_envelope_holds_the_pads_at_every_opening(spec, model):
    envelope = gripper_envelope(spec)
    for driver in np.linspace(0.0, spec.gripper.driver_closed, 17):
        data = placed(model, spec.arm.home, [driver, driver])
        flange = data.site(FLANGE_SITE)
        for side in ("right", "left"):
            for geom in (f"{side}_pad1", f"{side}_pad2"):
                center = flange.xmat.reshape(3, 3).T @ (data.geom(GRIPPER_PREFIX + geom).xpos - flange.xpos)
                assert (np.abs(center - envelope.center) <= envelope.half_size).all()


def test_contact_options_of_the_gripper_survive_attaching(model):
    assert model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert model.opt.impratio == 10
    assert model.opt.timestep == pytest.approx(1 / 400)


def test_every_body_is_held_against_gravity(model):
    assert (model.body_gravcomp[1:] == 1.0).all()
