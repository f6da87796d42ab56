"""Visual meshes: those of the user's MuJoCo Menagerie, on a model built from numbers."""

import os
from pathlib import Path

import mujoco
import numpy as np

from td3robot.errors import ConfigError
from td3robot.geometry import quaternion

# Names the folder of the user's Menagerie; the package mujoco-menagerie reads the same variable.
VARIABLE = "MENAGERIE_ROOT"
# Group of the visual geometries, in the Menagerie's models and in ours.
VISUAL_GROUP = 2


def find_menagerie(folder: str, file: str) -> Path | None:
    """Return the path of a model in the user's Menagerie, or None if there is no Menagerie or no such model.

    Raises:
        ConfigError: The variable does not name a folder.
    """
    root = os.environ.get(VARIABLE)
    if not root:
        return None
    if not Path(root).is_dir():
        raise ConfigError(f"{VARIABLE} is {root!r}, which is no folder; set it to a copy of the MuJoCo Menagerie")
    path = Path(root) / folder / file
    return path if path.is_file() else None


def dress(spec: mujoco.MjSpec, source: Path) -> None:
    """Replace the visual cylinders with the meshes of another model of the same arm.

    Both models have the same joints, zeros and body names; link frames may differ. Meshes have no mass and no
    contacts, so no number of the model changes.

    Args:
        spec: The model that gets the meshes.
        source: The file of the other model.

    Raises:
        ConfigError: The file is not a model of the same links.
    """
    try:
        theirs = mujoco.MjModel.from_xml_path(str(source))
    except ValueError as error:
        raise ConfigError(f"{source} cannot be loaded as a MuJoCo model: {error}") from None
    ours = spec.copy().compile()
    data, shown = _at_zero(ours), _at_zero(theirs)
    for body in spec.bodies[1:]:
        if mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_BODY, body.name) < 0:
            raise ConfigError(f"{source} has no body {body.name!r}: it is a model of another arm")
        for geom in list(body.geoms):
            if geom.group == VISUAL_GROUP:
                spec.delete(geom)
        position, rotation = data.body(body.name).xpos, data.body(body.name).xmat.reshape(3, 3)
        for index in _visuals(theirs, body.name):
            mesh = theirs.geom_dataid[index]
            name = f"{body.name}_{index}"
            first, count = theirs.mesh_vertadr[mesh], theirs.mesh_vertnum[mesh]
            face, faces = theirs.mesh_faceadr[mesh], theirs.mesh_facenum[mesh]
            spec.add_mesh(
                name=name,
                uservert=theirs.mesh_vert[first : first + count].ravel(),
                userface=theirs.mesh_face[face : face + faces].ravel(),
                inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
            )
            turned = rotation.T @ shown.geom_xmat[index].reshape(3, 3)
            material = theirs.geom_matid[index]
            body.add_geom(
                type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, group=VISUAL_GROUP, contype=0, conaffinity=0, mass=0.0,
                pos=rotation.T @ (shown.geom_xpos[index] - position), quat=quaternion(turned),
                rgba=theirs.geom_rgba[index] if material < 0 else theirs.mat_rgba[material],
            )  # fmt: skip


def _at_zero(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = np.zeros(model.nq)
    mujoco.mj_kinematics(model, data)
    return data


def _visuals(model: mujoco.MjModel, body: str) -> list[int]:
    first, count = model.body(body).geomadr[0], model.body(body).geomnum[0]
    is_seen = (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_group == VISUAL_GROUP)
    return [index for index in range(first, first + count) if is_seen[index]]
