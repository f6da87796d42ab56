"""A simulated camera: pictures of a cell with tags, through a given lens, with blur, noise and light."""

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.geometry import quaternion
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.offscreen import Offscreen
from td3robot.robots.simulated.scene import TABLE_GEOM, place_cell, simulation_spec
from td3robot.state import Array, ObjectModel, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.tags import BITS, MARGIN_BITS, Image, Tag, Tags, tag_image

Map = NDArray[np.float32]

# Half the thickness of a printed tag [m].
PAPER_M = 0.0001
# A room's light, as brightness of a white surface: from everywhere, from the camera, and from one direction.
AMBIENT, HEADLIGHT, DIRECTED = 0.4, 0.2, 0.3
# Nearest and furthest distance that is drawn [m].
NEAR_M, FAR_M = 0.02, 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture differs from a perfect one.

    Attributes:
        blur_px: Standard deviation of the lens's blur [pixels].
        noise: Standard deviation of the sensor's noise [of 255].
        light: Factor of all brightness.
    """

    blur_px: float = 0.6
    noise: float = 2.0
    light: float = 1.0

    def apply(self, image: Image, rng: np.random.Generator) -> Image:
        """Return an image (height, width, 3) as this camera would take it."""
        picture = image.astype(np.float32) * self.light
        if self.blur_px:
            picture = cv2.GaussianBlur(picture, (0, 0), self.blur_px).astype(np.float32)
        picture += self.noise * rng.standard_normal(picture.shape, np.float32)
        seen: Image = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
        return seen


class SimulatedCamera:
    """Draw a cell with tags as a camera sees it.

    Args:
        spec: The robot.
        objects: What lies on its table.
        tags: The tags on objects and table.
        camera: The lens, with its distortion. Its pose is given to :meth:`draw`.
        samples: Edge of the square of samples that make one pixel.
        detail_m: Vertices of a mesh that are this near to each other are drawn as one; 0 draws all.

    Raises:
        ConfigError: OpenGL is not available.
    """

    def __init__(
        self,
        spec: RobotSpec,
        objects: tuple[ObjectModel, ...],
        tags: Tags,
        camera: Camera,
        samples: int = 3,
        detail_m: float = 0.0,
    ) -> None:
        self._spec, self._camera, self._samples = spec, camera, samples
        self._map, self._low, self._high = _undistorted(camera)
        width, height = (int(n) * samples for n in self._high - self._low)
        scene = simulation_spec(spec, 500, objects)
        scene.visual.global_.offwidth, scene.visual.global_.offheight = width, height
        scene.visual.map.znear, scene.visual.map.zfar = NEAR_M, FAR_M
        scene.visual.headlight.ambient, scene.visual.headlight.diffuse = [AMBIENT] * 3, [HEADLIGHT] * 3
        for light in scene.lights:
            light.diffuse = [DIRECTED] * 3
        for item in objects:
            if item.name in tags.objects:
                geom = scene.geom(item.name)
                geom.size = np.asarray(geom.size) - 2 * PAPER_M  # its size is measured with the paper on it
                for tag in tags.of_object(item.name):
                    _add_tag(scene, scene.body(item.name), tag)
        scene.geom(TABLE_GEOM).pos[2] -= 2 * PAPER_M
        for tag in tags.of_table():
            _add_tag(scene, scene.worldbody, tag)
        self._model = scene.compile()
        if detail_m:
            _coarsen(self._model, detail_m)
        self._data = mujoco.MjData(self._model)
        self._options = mujoco.MjvOption()
        self._free = mujoco.MjvCamera()
        self._offscreen = Offscreen(self._model, width, height)

    def draw(self, q: Array, driver_q: Array, objects: Mapping[str, Pose], pose: Pose) -> Image:
        """Return a sharp picture (height, width, 3) in OpenCV's order of colours.

        Args:
            q: (n,) joint angles [rad].
            driver_q: (2,) the gripper's drivers.
            objects: Poses of the objects in the base frame.
            pose: The camera's, in the base frame.

        Raises:
            ConfigError: This is not the thread that made the camera.
        """
        self._offscreen.require_thread()
        place_cell(self._model, self._data, self._spec, q, driver_q, objects)
        mujoco.mj_forward(self._model, self._data)
        scene = self._offscreen.scene
        mujoco.mjv_updateScene(
            self._model, self._data, self._options, None, self._free, mujoco.mjtCatBit.mjCAT_ALL, scene
        )
        self._point(scene, pose)
        large = self._offscreen.draw()
        width, height = (int(n) for n in self._high - self._low)
        image = cv2.resize(large, (width, height), interpolation=cv2.INTER_AREA)[..., ::-1]
        if self._map is not None:
            image = cv2.remap(np.ascontiguousarray(image), *self._map, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        return np.ascontiguousarray(image, np.uint8)

    def close(self) -> None:
        """Free the OpenGL context."""
        self._offscreen.close()

    def _point(self, scene: mujoco.MjvScene, pose: Pose) -> None:
        """Put the camera at its pose, with its focal lengths and principal point."""
        K = self._camera.K
        # Outer edges of the picture; the first pixel's centre is half a pixel inside.
        left, top = (self._low - 0.5 - K[:2, 2]) / K[[0, 1], [0, 1]] * NEAR_M
        right, bottom = (self._high - 0.5 - K[:2, 2]) / K[[0, 1], [0, 1]] * NEAR_M
        for eye in scene.camera:
            eye.pos[:], eye.forward[:], eye.up[:] = pose.position, pose.rotation[:, 2], -pose.rotation[:, 1]
            eye.frustum_near, eye.frustum_far = NEAR_M, FAR_M
            eye.frustum_center, eye.frustum_width = (left + right) / 2, (right - left) / 2
            eye.frustum_top, eye.frustum_bottom = -top, -bottom


def _undistorted(camera: Camera) -> tuple[tuple[Map, Map] | None, Array, Array]:
    """Return each pixel's x and y in a picture without distortion, and that picture's first and last corner (2,)."""
    low, high = np.zeros(2), np.array([camera.width, camera.height], float)
    if not np.any(camera.D):
        return None, low, high
    x, y = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    pixels = np.column_stack((x.ravel(), y.ravel())).astype(float)
    perfect = camera.normalized(pixels) * camera.K[[0, 1], [0, 1]] + camera.K[:2, 2]
    low, high = np.floor(perfect.min(axis=0)) - 2.0, np.ceil(perfect.max(axis=0)) + 3.0
    found = (perfect - low).reshape(camera.height, camera.width, 2).astype(np.float32)
    return (np.ascontiguousarray(found[..., 0]), np.ascontiguousarray(found[..., 1])), low, high


def _coarsen(model: mujoco.MjModel, cell_m: float) -> None:
    """Draw each mesh with one vertex in every cube of a grid; most of a software renderer's time goes into vertices."""
    for mesh in range(model.nmesh):
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        cells = np.rint(model.mesh_vert[first : first + count] / cell_m).astype(np.int64)
        _, kept, cell_of = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        begin, end = model.mesh_faceadr[mesh] + np.array([0, model.mesh_facenum[mesh]])
        faces = kept[cell_of.ravel()][model.mesh_face[begin:end]]
        a, b, c = faces.T
        whole = np.flatnonzero((a != b) & (b != c) & (c != a))
        end = begin + len(whole)
        model.mesh_face[begin:end] = faces[whole]
        for corners in (model.mesh_facenormal, model.mesh_facetexcoord):
            corners[begin:end] = corners[begin + whole]
        model.mesh_facenum[mesh] = len(whole)


def _add_tag(scene: mujoco.MjSpec, body: mujoco.MjsBody, tag: Tag) -> None:
    """Stick a printed tag with its margin on a body."""
    name, image = f"tag_{tag.id}", tag_image(tag.id)
    picture = np.ascontiguousarray(np.repeat(image[..., None], 3, axis=2))
    texture = scene.add_texture(
        name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, width=image.shape[1], height=image.shape[0], nchannel=3
    )
    texture.data = picture.tobytes()
    paper = scene.add_material(name=name, texrepeat=[1, 1], specular=0.0, shininess=0.0)
    paper.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    centre = tag.centre_m - PAPER_M * tag.rotation[:, 2]
    half = tag.size_m * (BITS + 2 * MARGIN_BITS) / BITS / 2
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, size=[half, half, PAPER_M], pos=centre, quat=quaternion(tag.rotation),
        material=name, contype=0, conaffinity=0, mass=0.0,
    )  # fmt: skip
