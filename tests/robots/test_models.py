import mujoco
import numpy as np
import pytest

from td3robot.build import robot_spec
from td3robot.config import GuardConfig, RobotConfig
from td3robot.robots.arms import ARMS
from td3robot.robots.grippers import GRIPPERS
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.scene import (
    FLANGE_SITE,
    GRIPPER_PREFIX,
    TABLE_GEOM,
    TCP_SITE,
    gripper_envelope,
    keep_hulls,
    set_gripper,
    simulation_spec,
)
from td3robot.state import JointCommand

PADS = ("right_pad", "left_pad")
CELLS = [(arm, "robotiq_2f85") for arm in ARMS] + [("ur5e", gripper) for gripper in GRIPPERS]


@pytest.fixture(scope="module", params=GRIPPERS)
def spec(request):
    return robot_spec(RobotConfig(gripper=request.param))


@pytest.fixture(scope="module")
def model(spec):
    return simulation_spec(spec, physics_rate_hz=400.0).compile()


@pytest.fixture
def placed(spec, model):
    """Place the arm at home and the drivers at a closed fraction, or where they are told."""

    def placed(closed=0.0, drivers=None):
        data = mujoco.MjData(model)
        data.qpos[: len(spec.arm.home)] = spec.arm.home
        set_gripper(model, data, spec.gripper, spec.gripper.drivers_at(closed) if drivers is None else drivers)
        mujoco.mj_kinematics(model, data)
        return data

    return placed


def pad_boxes(data):
    """Give the pads' boxes, right and left (2, 2): tip and root."""
    return [[data.geom(f"{GRIPPER_PREFIX}{pad}{n}") for n in (1, 2)] for pad in PADS]


def gap(model, data):
    """Measure how far the pads' faces are apart, along the way they close [m]."""
    site = data.site(TCP_SITE)
    right, left = ([site.xmat.reshape(3, 3).T @ (box.xpos - site.xpos) for box in boxes] for boxes in pad_boxes(data))
    depth = 2.0 * min(model.geom(f"{GRIPPER_PREFIX}right_pad1").size)
    return abs(np.mean(right, axis=0) - np.mean(left, axis=0))[0] - depth


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
        np.testing.assert_allclose(joint.range, sorted([spec.gripper.driver_open, spec.gripper.driver_closed]))


def test_every_joint_of_the_linkage_stays_within_its_range(spec, model):
    ends = [float(spec.gripper.drivers_at(closed)[0]) for closed in (0.0, 1.0)]
    for name, share in (link for side in spec.gripper.links for link in side):
        low, high = model.joint(GRIPPER_PREFIX + name).range
        assert low - 1e-9 <= min(share * end for end in ends)
        assert max(share * end for end in ends) <= high + 1e-9


def test_mass_is_that_of_the_model(spec, model):
    palm = model.body(GRIPPER_PREFIX + spec.gripper.base).id
    # The Menagerie's 2F-85 weighs 1.053 kg, 0.13 kg more than its manual says.
    play = 0.15 if spec.gripper.name == "robotiq_2f85" else 1e-6
    assert model.body_subtreemass[palm] == pytest.approx(spec.gripper.mass_kg, abs=play)


def test_the_open_jaw_is_as_wide_as_its_stroke_and_the_closed_one_shut(spec, model, placed):
    assert gap(model, placed(0.0)) == pytest.approx(spec.gripper.jaw.stroke_m, abs=0.003)
    assert gap(model, placed(1.0)) == pytest.approx(0.0, abs=0.003)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_the_pads_meet_an_object_where_its_width_says(spec, model, placed, share):
    width = share * spec.gripper.jaw.widest_m
    # The 2F-85 is taken to close in proportion to its drivers, which is 2.5 mm off in the middle.
    play = 0.004 if spec.gripper.name == "robotiq_2f85" else 1e-6
    assert gap(model, placed(spec.gripper.closed_on(width))) == pytest.approx(width, abs=play)


def test_tool_offset_is_along_the_flange(spec, placed):
    data = placed()
    flange, tool = data.site(FLANGE_SITE), data.site(TCP_SITE)
    axis = flange.xmat.reshape(3, 3)[:, 2]
    np.testing.assert_allclose(tool.xpos - flange.xpos, spec.tcp_offset_m * axis, atol=1e-9)


# The pads of linkages move along the flange's axis, by 14 mm (2F-85) or 24 mm (2F-140) from open to closed: what is
# held is a third of the stroke wide at most.
@pytest.mark.parametrize("closed", [0.75, 0.875, 1.0])
def test_tool_centre_point_is_between_the_pads_where_they_hold_something(placed, closed):
    data = placed(closed)
    middle = np.mean([box.xpos for boxes in pad_boxes(data) for box in boxes], axis=0)
    np.testing.assert_allclose(middle, data.site(TCP_SITE).xpos, rtol=0, atol=1.5e-3)


def test_home_points_the_tool_down_in_front_of_the_arm(placed):
    tool = placed().site(TCP_SITE)
    np.testing.assert_allclose(tool.xmat.reshape(3, 3)[:, 2], [0, 0, -1], atol=1e-9)
    assert tool.xpos[1] > 0.3


def test_table_top_is_at_its_height(spec, model):
    table = model.geom(TABLE_GEOM)
    assert table.pos[2] + table.size[2] == pytest.approx(spec.table_height_m)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.75, 0.95])
def test_set_gripper_agrees_with_the_settled_linkage(spec, placed, fraction):
    robot = MujocoRobot(spec, physics_rate_hz=400.0)
    robot.connect()
    for _ in range(40):
        robot.send(JointCommand(spec.arm.home, fraction))
        robot.advance()
    state = robot.read()
    still = placed(drivers=state.driver_q)
    play = 0.0125 * abs(spec.gripper.driver_range)
    np.testing.assert_allclose(state.driver_q, spec.gripper.drivers_at(fraction), rtol=0, atol=play)
    # As at home, from where a settled arm is not further than it sags.
    robot.data.qpos[: len(spec.arm.home)] = spec.arm.home
    mujoco.mj_kinematics(robot.model, robot.data)
    for pad in PADS:
        simulated, set_up = robot.data.body(GRIPPER_PREFIX + pad), still.body(GRIPPER_PREFIX + pad)
        np.testing.assert_allclose(simulated.xpos, set_up.xpos, rtol=0, atol=1e-3)
        np.testing.assert_allclose(simulated.xmat, set_up.xmat, rtol=0, atol=0.04)
    robot.close()


def test_gripper_envelope_holds_the_pads_at_every_opening(spec, placed):
    envelope = gripper_envelope(spec)
    for closed in np.linspace(0.0, 1.0, 17):
        data = placed(closed)
        flange = data.site(FLANGE_SITE)
        for box in (box for boxes in pad_boxes(data) for box in boxes):
            center = flange.xmat.reshape(3, 3).T @ (box.xpos - flange.xpos)
            assert (np.abs(center - envelope.center) <= envelope.half_size).all()


# Where the tool is at the lowest grasp, its fingers are clear of the table, and get hold of the lowest objects.
def test_jaw_s_heights_are_those_of_the_fingers(spec, model, placed):
    jaw, deepest = spec.gripper.jaw, []
    for closed in np.linspace(0.0, 1.0, 9):
        data = placed(closed)
        tool = data.site(TCP_SITE).xpos[2]
        ends = [tool - (box.xpos[2] - corner(model, box)) for box, _ in pad_boxes(data)]
        deepest.append(max(ends))
    assert max(deepest) <= jaw.fingertips_m
    assert jaw.grasp_height_m - max(deepest) >= GuardConfig().clearance_m
    if jaw.reach_at is not None:
        assert deepest[0] == pytest.approx(jaw.reach_at(jaw.stroke_m), abs=1e-6)
        assert deepest[-1] == pytest.approx(jaw.reach_at(0.0), abs=1e-6)


def corner(model, box):
    """Give how far a box reaches up and down from its middle [m]."""
    return np.abs(box.xmat.reshape(3, 3)[2]) @ model.geom(box.id).size


def test_contact_options_of_the_gripper_survive_attaching(model):
    assert model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert model.opt.impratio == 10
    assert model.opt.timestep == pytest.approx(1 / 400)


def test_every_body_is_held_against_gravity(model):
    assert (model.body_gravcomp[1:] == 1.0).all()


def touching(model):
    return np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0))


@pytest.mark.parametrize(("arm", "gripper"), CELLS)
def test_an_environment_simulates_hulls_and_weighs_the_same(arm, gripper):
    robot = robot_spec(RobotConfig(arm=arm, gripper=gripper))
    spec, whole = simulation_spec(robot, 400.0), simulation_spec(robot, 400.0).compile()
    keep_hulls(spec)
    lean = spec.compile()
    for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_invweight0"):
        np.testing.assert_array_equal(getattr(lean, name), getattr(whole, name))
    np.testing.assert_array_equal(touching(lean), np.arange(lean.ngeom))
    assert len(touching(whole)) == lean.ngeom
    assert lean.nmesh == 0 or lean.nbuffer < 0.3 * whole.nbuffer


@pytest.mark.parametrize(("arm", "gripper"), CELLS)
def test_hulls_are_where_their_meshes_were_and_as_far_from_a_sphere(arm, gripper):
    """MuJoCo's own distance function is the judge, with a small sphere all around each geometry."""
    robot = robot_spec(RobotConfig(arm=arm, gripper=gripper))
    specs = simulation_spec(robot, 400.0), simulation_spec(robot, 400.0)
    keep_hulls(specs[1])
    for spec in specs:
        spec.worldbody.add_body(name="probe", mocap=True).add_geom(
            name="probe", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.005, 0, 0]
        )
    whole, lean = (spec.compile() for spec in specs)
    scenes = [(model, mujoco.MjData(model)) for model in (whole, lean)]
    rng = np.random.default_rng(0)
    meshes = mujoco.mjtGeom.mjGEOM_MESH
    pairs = [pair for pair in zip(touching(whole), touching(lean), strict=True) if whole.geom_type[pair[0]] == meshes]
    for geoms in pairs:
        assert lean.geom_type[geoms[1]] == meshes
        for _ in range(10):
            way = rng.normal(size=3)
            found = []
            for (model, data), geom in zip(scenes, geoms, strict=True):
                mujoco.mj_kinematics(model, data)
                data.mocap_pos[0] = data.xpos[model.geom_bodyid[geom]] + 0.3 * way / np.linalg.norm(way)
                mujoco.mj_kinematics(model, data)
                found.append(mujoco.mj_geomDistance(model, data, geom, model.geom("probe").id, 1.0, None))
            assert found[1] == pytest.approx(found[0], abs=1e-6)
            assert 0.0 < found[0] < 1.0
    assert bool(pairs) == (gripper in ("robotiq_2f85", "franka_hand"))  # the others are boxes
