"""Visible geometry of a compiled MuJoCo model as Swift shapes: meshes as STL files, boxes and cylinders as such."""

from pathlib import Path

import mujoco
import numpy as np
import spatialgeometry

from td3robot.state import Array
from td3robot.view.picture import Picture

FACET = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("spare", "<u2")])


def shapes_of(picture: Picture, folder: Path) -> list[tuple[int, spatialgeometry.Shape]]:
    """Return every visible geometry as a shape, with its number; meshes are written to a folder first."""
    return [(geom, _shape(picture.model, geom, folder)) for geom in picture.seen_geoms()]


def write_stl(path: Path, vertices: Array, faces: Array) -> None:
    """Write a mesh as binary STL.

    Args:
        path: The file.
        vertices: (n, 3) [m].
        faces: (m, 3) vertex indices.
    """
    corners = vertices[faces]
    facets = np.zeros(len(faces), FACET)
    facets["corners"] = corners
    facets["normal"] = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    path.write_bytes(bytes(80) + np.uint32(len(faces)).tobytes() + facets.tobytes())


def _shape(model: mujoco.MjModel, geom: int, folder: Path) -> spatialgeometry.Shape:
    material = model.geom_matid[geom]
    color = (model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]).tolist()
    size = model.geom_size[geom].tolist()
    match mujoco.mjtGeom(model.geom_type[geom]):
        case mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.mesh(model.geom_dataid[geom])
            path = folder / f"mesh{model.geom_dataid[geom]}.stl"
            if not path.exists():
                vertices = model.mesh_vert[int(mesh.vertadr[0]) :][: int(mesh.vertnum[0])]
                write_stl(path, vertices, model.mesh_face[int(mesh.faceadr[0]) :][: int(mesh.facenum[0])])
            return spatialgeometry.Mesh(str(path), color=color)
        case mujoco.mjtGeom.mjGEOM_BOX:
            return spatialgeometry.Cuboid([2 * half for half in size], color=color)
        case mujoco.mjtGeom.mjGEOM_CYLINDER | mujoco.mjtGeom.mjGEOM_CAPSULE:
            return spatialgeometry.Cylinder(size[0], 2 * size[1], color=color)
        case _:
            return spatialgeometry.Sphere(max(size), color=color)
