"""A grasp of any object: what is drawn, told, simulated and allowed, and that the script does it."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from playing import successes_of_script

from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, RobotConfig, load_config
from td3robot.config.objects import AnyObjectConfig, ObjectConfig
from td3robot.errors import ConfigError, ContractError
from td3robot.policy.contract import require_covered
from td3robot.robots.cells import CellConfig
from td3robot.robots.grippers import GRIPPERS
from td3robot.tasks.grasp import OBJECT, GraspConfig, misfit

NAME = Path("ur5e_grasp_any")
MM = 1e3


def configured(*overrides):
    return load_config(NAME, [f"environment.{each}" for each in overrides]).environment


@pytest.fixture(scope="module")
def environment():
    made = make_robot_env(configured("disturbance=off"))
    yield made
    made.close()


def test_the_jaw_takes_every_object_that_is_drawn_and_all_kinds_are():
    rng, ours, gripper = np.random.default_rng(0), AnyObjectConfig(), GRIPPERS["robotiq_2f140"]
    drawn = [ours.draw(rng, gripper.jaw.lowest_m) for _ in range(600)]
    assert [misfit(item, gripper.jaw) for item in drawn] == [None] * len(drawn)
    assert all(ours.covers(item) and item.size_m[0] <= item.size_m[1] for item in drawn)
    shares = [sum(item.symmetry == turns for item in drawn) / len(drawn) for turns in (0, 4, 2)]
    np.testing.assert_allclose(shares, [1 / 2, 1 / 6, 1 / 3], atol=0.06)


def test_an_episode_s_object_is_observed_as_it_is_told(environment):
    told = ("object_size", "object_is_round")
    fields = {field.name: (field.components, field.unit, field.source) for field in environment.task.layout.fields}
    assert [fields[name] for name in told] == [(("across", "along", "up"), "m", "task"), (("round",), "1", "task")]
    fixed = make_robot_env(load_config(Path("ur5e_grasp_quick")).environment)
    assert fields.keys() - {field.name for field in fixed.task.layout.fields} == set(told)
    shapes = set()
    for seed in range(4):
        observation, _ = environment.reset(seed=seed)
        seen, item = environment.task.layout.unpack(observation), environment.goal.models[OBJECT]
        np.testing.assert_allclose(seen["object_size"], item.size_m, rtol=1e-6)
        assert bool(seen["object_is_round"][0]) == (item.shape == "cylinder")
        shapes.add(item.shape)
    assert shapes == {"box", "cylinder"}


@pytest.mark.parametrize("disturbance", ["off", "real"])
def test_the_simulation_has_the_episode_s_object(disturbance):
    """Its geometry is the one of a model that is compiled for it, and it comes to rest at half its height."""
    environment = make_robot_env(configured(f"disturbance={disturbance}"))
    for seed in range(4):
        environment.reset(seed=seed)
        robot, item = getattr(environment.robot, "robot", environment.robot), environment.goal.models[OBJECT]
        scale, table_m = robot.variation.object_scale, robot.variation.table_offset_m
        mass_kg = robot.variation.object_mass_kg or item.mass_kg
        model, compiled = robot.model, alone(item, scale, mass_kg)
        geom, body = model.geom(OBJECT).id, model.body(OBJECT).id
        for ours, theirs in (
            (model.geom_type[geom], compiled.geom_type[0]),
            (model.geom_size[geom], compiled.geom_size[0]),
            (model.geom_aabb[geom], compiled.geom_aabb[0]),
            (model.geom_rbound[geom], compiled.geom_rbound[0]),
            (model.bvh_aabb[model.body_bvhadr[body]], compiled.bvh_aabb[compiled.body_bvhadr[1]]),
            (model.body_mass[body], compiled.body_mass[1]),
            (model.body_inertia[body], compiled.body_inertia[1]),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        for _ in range(10):
            environment.drive(environment.guard.commanded)
        rest_m = environment.robot.spec.table_height_m + table_m + scale * item.size_m[2] / 2
        assert environment.world.objects[OBJECT].position[2] == pytest.approx(rest_m, abs=5e-4)
    environment.close()


def alone(item, scale, mass_kg):
    """Compile a world that has nothing but an object."""
    x, y, z = (str(scale * extent / 2) for extent in item.size_m)
    size = f"{x} {y} {z}" if item.shape == "box" else f"{x} {z}"
    geom = f'<geom type="{item.shape}" size="{size}" mass="{mass_kg}"/>'
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody><body><freejoint/>{geom}</body></worldbody></mujoco>")


@pytest.mark.parametrize(("disturbance", "episodes"), [("off", 8), ("real", 8)])
def test_the_script_lifts_any_object(disturbance, episodes):
    assert successes_of_script(configured(f"disturbance={disturbance}", "episode_s=8"), episodes) == episodes


@pytest.mark.slow
def test_the_script_lifts_200_objects():
    assert successes_of_script(configured("episode_s=8"), 200) >= 0.95 * 200


def test_an_object_that_is_told_is_every_episode_s(environment):
    config = configured("disturbance=off", "task.object={shape: cylinder, size_m: [0.03, 0.03, 0.05]}")
    told = make_robot_env(config)
    told.task.layout.require_same(environment.task.layout, "observation")
    for seed in range(2):
        seen = told.task.layout.unpack(told.reset(seed=seed)[0])
        np.testing.assert_allclose([*seen["object_size"], *seen["object_is_round"]], [0.03, 0.03, 0.05, 1.0])
        assert not told.goal.models
    told.close()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (ObjectConfig(), None),
        (ObjectConfig(size_m=(0.07, 0.025, 0.06), mass_kg=0.3), None),
        (ObjectConfig(shape="cylinder", size_m=(0.05, 0.05, 0.07)), None),
        (ObjectConfig(size_m=(0.04, 0.04, 0.071)), "a box of 40 x 40 x 71 mm, 0.1 kg heavy"),
        (ObjectConfig(size_m=(0.024, 0.04, 0.04)), "a box of 24 x 40 x 40 mm"),
        (ObjectConfig(mass_kg=0.5), "0.5 kg heavy"),
        (ObjectConfig(friction=0.3), "a friction of 0.3"),
    ],
)
def test_a_policy_runs_on_any_object_that_its_training_drew(environment, item, words):
    trained = environment.contract()
    here = make_robot_env(configured("disturbance=off", f"task.object={item.model_dump_json()}")).contract()
    varied = DISTURBANCES["real"]
    if words is None:
        assert [each.name for each in here.compare(trained, varied)] == ["task.object"]
        require_covered(here, trained, varied, "")
        return
    with pytest.raises(ContractError, match=r"^contract: task\.object: a ") as caught:
        require_covered(here, trained, varied, "choose another")
    assert words in str(caught.value)
    assert str(caught.value).endswith(
        "wanted any (a box or cylinder with sides of 25 to 70 mm and a height of 25 to 70 mm, 0.02 to 0.3 kg heavy and "
        "with a friction of 0.5 to 1.2, by training's any_object); a policy runs only on what it was trained for; "
        "choose another"
    )


def test_shapes_that_training_did_not_draw_are_refused():
    trained = make_robot_env(configured("task.any_object.shapes=[cylinder]")).contract()
    here = make_robot_env(configured("task.any_object.shapes=[cylinder]", "task.object={}")).contract()
    with pytest.raises(ContractError, match=r"a box of 40 x 40 x 40 mm.*wanted any \(a cylinder with sides"):
        require_covered(here, trained, DISTURBANCES["real"], "")


def test_with_a_fixed_object_a_contract_is_what_it_was():
    assert "any_object" not in make_robot_env(load_config(Path("ur5e_grasp")).environment).contract().terms["task"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["any_object.sides_m=[0.07, 0.025]"], r"any_object\.sides_m: \(0\.07, 0\.025\) is no range"),
        (["any_object.shapes=[]"], r"any_object\.shapes"),
        (["any_object.sides_m=[0.025, 0.09]"], r"task\.any_object: .* 90 mm wide .* the jaw takes at most 80 mm"),
        (["any_object.sides_m=[0.01, 0.05]"], r"task\.any_object: .* 10 mm wide .* below 15 mm"),
        (["any_object.height_m=[0.01, 0.05]"], r"task\.any_object: .* 10 mm high, and the fingers grasp nothing lower"),
        (["any_object.sides_m=[0.025, 0.075]"], r"object_scale .* 82\.5 mm wide"),
        (["any_object=null", "object=null"], "object is null, and only any_object draws one"),
        (["name=place"], r"task\.any_object: it is for the task grasp, and this task has one object"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_numbers(overrides, words):
    with pytest.raises(ConfigError, match=words):
        configured(*(f"task.{each}" for each in overrides))


def test_a_cell_says_which_object_lies_there():
    values = {
        "robot": {"backend": "ur"},
        "ur": {"host": "192.0.2.1"},
        "taught": {OBJECT: {"position_m": [0, 0.5, 0.03]}},
    }
    config, robot = configured(), RobotConfig(backend="ur")
    with pytest.raises(ConfigError, match=r"for any object, and the cell does not say which one .* such as object: \{"):
        make_robot_env(config, cell=CellConfig.model_validate(values))
    cell = CellConfig.model_validate(values | {"object": {"shape": "cylinder", "size_m": [0.05, 0.05, 0.06]}})
    assert ("object.shape", "box", "cylinder") in cell.changes()
    task = config.in_cell(robot, cell.object).task
    assert isinstance(task, GraspConfig) and task.object == cell.object
    assert config.task.typical == ObjectConfig(size_m=(0.0475,) * 3)
    assert load_config(Path("ur5e_reach")).environment.task.told(cell.object).objects() == ()
