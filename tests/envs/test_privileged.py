"""The true state beside the observation, for critics that see it; the observation stays as it is."""

from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_robot_env
from td3robot.config import load_config
from td3robot.envs.privileged import DRAWN
from td3robot.envs.rows import RobotRows, SingleRows
from td3robot.learning.runs import training_environments

COUNT, STEPS = 3, 12


def configurations(name, disturbance, *more):
    overrides = [f"environment.disturbance={disturbance}", f"training.environments={COUNT}", *more]
    return training_environments(load_config(Path(name), overrides))


def make(configs, privileged):
    return [make_robot_env(config, practice=True, privileged=privileged) for config in configs]


def played(rows):
    """Give the observations of some steps of every row (steps, rows, size)."""
    found = [np.stack([rows.reset(row, row) for row in range(rows.count)])]
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, rows.count, *rows.action_shape)).astype(np.float32)
    found += [np.stack(list(rows.step(action, np.arange(rows.count)).observations)) for action in actions]
    return np.stack(found)


@pytest.mark.parametrize("name", ["ur5e_grasp_quick", "ur5e_reach_quick"])
@pytest.mark.quick("ur5e_grasp_quick")
def test_the_true_state_follows_an_observation_that_stays_the_same(name):
    configs = configurations(name, "real", "training.undisturbed_share=0.34")
    with_truth, without = RobotRows(make(configs, True)), RobotRows(make(configs, False))
    both, plain, layout = played(with_truth), played(without), with_truth.observation_layout
    size = plain.shape[-1]
    assert both.shape[-1] == layout.size == size + with_truth.privileged_size
    np.testing.assert_array_equal(both[..., :size], plain)
    values, state = layout.unpack(both[-1]), with_truth.batch.state
    np.testing.assert_allclose(values["true_q"], state.q, atol=1e-6)
    np.testing.assert_allclose(values["true_dq"], state.dq, atol=1e-6)
    assert np.abs(values["true_q"] - values["q"]).max() > 1e-4  # late and noisy for the policy


def test_undisturbed_the_truth_is_what_is_observed():
    rows = RobotRows(make(configurations("ur5e_reach_quick", "off"), True))
    values = rows.observation_layout.unpack(played(rows))
    for field in rows.observation_layout.fields:
        if f"true_{field.name}" in values:
            np.testing.assert_array_equal(values[f"true_{field.name}"], values[field.name])
    assert not values["drawn"].any()


@pytest.mark.thorough
def test_a_row_has_the_same_truth_alone():
    configs = configurations("ur5e_grasp_quick", "real")
    together, alone = played(RobotRows(make(configs, True))), played(SingleRows(make(configs, True)))
    np.testing.assert_array_equal(together, alone)


def test_an_object_has_the_velocity_at_which_it_moves():
    rows = RobotRows(make(configurations("ur5e_grasp_quick", "off"), True))
    still = rows.observation_layout.unpack(played(rows))["true_object_velocity"]
    assert np.abs(still[0]).max() == 0.0
    robot, rest = rows.batch.cells[0].robot, np.zeros((COUNT, *rows.action_shape), np.float32)
    joint = next(iter(rows.batch.state.objects))
    robot.data.joint(joint).qvel[:3] = [0.2, 0.0, 0.0]
    before = rows.batch.state.objects[joint].position[0, 0]
    values = rows.observation_layout.unpack(rows.step(rest, np.arange(COUNT)).observations)
    moved = rows.batch.state.objects[joint].position[0, 0] - before
    assert moved > 0.0
    np.testing.assert_allclose(values["true_object_velocity"][0, 0], moved / rows.batch.spec.period_s, rtol=1e-4)


def test_what_was_drawn_is_told_relative_to_an_undisturbed_cell():
    row = RobotRows(make(configurations("ur5e_grasp_quick", "real"), True))
    drawn = dict(zip(DRAWN, row.observation_layout.unpack(played(row)[0])["drawn"].T, strict=True))
    variation, cell = row.batch.cells[0].robot.robot.variation, row.batch.setting.objects[0]
    assert drawn["gripper_speed"][0] == pytest.approx((variation.gripper_speed - 1.0) / 0.5, abs=1e-6)
    assert drawn["object_mass_kg"][0] == pytest.approx((variation.object_mass_kg - cell.mass_kg) / 0.1, abs=1e-5)
    assert drawn["tool_offset_y_m"][0] == pytest.approx(variation.tool_offset_m[1] / 0.003, abs=1e-5)
    assert all(np.abs(values).max() > 0.0 for values in drawn.values())


def test_the_contract_knows_the_policy_alone():
    (config, *_) = configurations("ur5e_reach_quick", "real")
    contracts = [make_robot_env(config, practice=True, privileged=each).contract() for each in (False, True)]
    assert contracts[0].terms == contracts[1].terms
