"""Every arm and gripper that a stand-in can be: their numbers come from the models, and from nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from td3robot.errors import ConfigError
from td3robot.registry import ARMS, GRIPPERS
from td3robot.robots.interface import robot_spec
from td3robot.robots.ur.generations import model_names
from td3robot.simulators.arm import PERIOD_S, SimulatedArm, own_parameters
from td3robot.simulators.controller import Controller
from td3robot.simulators.gripper import Gripper
from td3robot.simulators.presets import CalibrationConfig
from td3robot.simulators.settings import make_controller_config


def is_ur(name):
    try:
        return bool(model_names(ARMS[name]))
    except ConfigError:
        return False


URS = [name for name in ARMS if is_ur(name)]
ROBOTIQ = [name for name in GRIPPERS if GRIPPERS[name].counts is not None]


@pytest.mark.parametrize("gripper", ROBOTIQ)
@pytest.mark.parametrize("name", URS)
def test_a_stand_in_is_the_arm_that_was_asked_for(name, gripper):
    config = make_controller_config(name, gripper=gripper)
    spec, model = config.spec(), ARMS[name]
    arm = SimulatedArm(spec, parameters=own_parameters(spec.arm, config.calibration))
    controller = Controller(arm, config)
    assert config.model == controller.model == model_names(model)[0]
    assert controller.payload == pytest.approx(GRIPPERS[gripper].mass_kg, abs=0.05)
    assert controller.tcp_offset.position[2] == spec.tcp_offset_m
    tool = arm.spec.arm.chain.flange(arm.q) @ [0.0, 0.0, spec.tcp_offset_m, 1.0]
    np.testing.assert_allclose(arm.tcp().position, tool[:3], rtol=0, atol=1e-9)
    for joint in range(6):
        arm.dq = np.zeros(6)
        arm.dq[joint] = 1.05 * model.velocity[joint]
        assert controller.safety.objection(arm.q) is None
        arm.dq[joint] = 1.07 * model.velocity[joint]
        assert f"{model.joint_names[joint]} at " in controller.safety.objection(arm.q)
    outside = arm.q.copy()
    outside[2] = model.upper[2] + 0.01
    assert "outside the joint limits" in controller.safety.objection_to_target(outside, outside)


def test_the_run_s_arm_is_the_stand_in_s(spec):
    with pytest.raises(ConfigError, match="the run is for a ur5e, and the stand-in would be a"):
        other = next((name for name in URS if name != "ur5e"), None)
        if other is None:
            pytest.skip("there is only one arm")
        make_controller_config(other, make_controller_config("ur5e").robot)


def test_an_unknown_gripper_is_named():
    with pytest.raises(ConfigError, match="robotiq_2f85"):
        make_controller_config("ur5e", gripper="robotiq_2f58")


def test_without_a_calibration_the_arm_is_nominal(spec):
    assert own_parameters(spec.arm, "off") is None
    assert SimulatedArm(spec).spec.arm == spec.arm
    own = SimulatedArm(spec, parameters=own_parameters(spec.arm, CalibrationConfig()))
    assert 1e-4 < np.abs(own.tcp().position - SimulatedArm(spec).tcp().position).max() < 5e-3


def drive(gripper, count, speed, seconds=3.0):
    """Let the fingers follow the motor; returns after how many seconds they arrived."""
    gripper.write({"ACT": 1})
    gripper.activate_at_once()
    gripper.write({"POS": count, "SPE": speed, "GTO": 1})
    for tick in range(round(seconds / PERIOD_S)):
        gripper.tick(gripper.fraction)
        if abs(gripper.get("POS") - count) <= 1:
            return (tick + 1) * PERIOD_S
    raise AssertionError("it did not arrive")


@pytest.mark.parametrize("name", ROBOTIQ)
def test_a_gripper_has_the_counts_and_speeds_of_its_model(name):
    model = GRIPPERS[name]
    counts, stroke = model.counts, model.jaw.stroke_m
    for speed, expected in zip((0, 255), counts.speed_m_s, strict=True):
        gripper = Gripper(model)
        assert gripper.get("POS") == counts.open
        took = drive(gripper, counts.closed, speed, 1.2 * stroke / expected)
        assert took == pytest.approx(stroke / expected, rel=0.02, abs=0.01)


def test_another_gripper_counts_and_moves_by_its_own_numbers():
    """One with slides: its drivers are in metres, its stroke and counts are others."""
    model = GRIPPERS["robotiq_2f85"]
    counts = replace(model.counts, open=10, closed=200, speed_m_s=(0.02, 0.1))
    other = replace(model, driver_unit="m", driver_closed=0.025, jaw=replace(model.jaw, stroke_m=0.05), counts=counts)
    assert drive(Gripper(other), 200, 255) == pytest.approx(0.5, abs=0.02)
    gripper = Gripper(other)
    gripper.tick(other.closed_fraction(np.full(2, 0.0125)))
    assert gripper.get("POS") == 105


def test_a_gripper_without_counts_is_refused():
    with pytest.raises(ConfigError, match="has no position counts"):
        Gripper(replace(GRIPPERS["robotiq_2f85"], counts=None))


def test_the_nominal_robot_is_that_of_the_settings():
    config = make_controller_config("ur5e")
    assert config.spec() == robot_spec(config.robot)
