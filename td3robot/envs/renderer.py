"""Offscreen images of the cell, from joint angles alone: the same for any robot."""

import sys
import threading
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.envs.video import drawing_library
from td3robot.errors import ConfigError
from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import place_cell, simulation_spec
from td3robot.state import Array, ObjectModel, World

GOAL_RADIUS_M = 0.015
MAX_GEOMS = 1000
# A shadow's half thickness [m] and colour.
SHADOW_M, SHADOW_RGBA = 0.001, (0.1, 0.08, 0.05, 0.45)


class Renderer:
    """Draw the arm, its gripper, the table, objects and a goal.

    Raises:
        ConfigError: OpenGL is not available.
    """

    def __init__(
        self, spec: RobotSpec, objects: tuple[ObjectModel, ...] = (), width: int = 640, height: int = 480
    ) -> None:
        self._spec, self._objects = spec, objects
        scene = simulation_spec(spec, 500, objects)
        scene.visual.global_.offwidth, scene.visual.global_.offheight = width, height
        goal = scene.worldbody.add_body(name="goal", mocap=True)
        goal.add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[GOAL_RADIUS_M, 0, 0],
            contype=0, conaffinity=0, rgba=[0.10, 0.65, 0.35, 0.9],
        )  # fmt: skip
        self._model = scene.compile()
        self._data = mujoco.MjData(self._model)
        self._options = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.lookat[:] = [0.0, 0.38, 0.24]
        self._camera.distance, self._camera.azimuth, self._camera.elevation = 1.65, 158.0, -18.0
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._thread = threading.get_ident()
        try:
            self._gl = _gl_context(width, height)
            self._gl.make_current()
            self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        except Exception as error:  # noqa: BLE001  # whatever the platform's OpenGL loader raises
            raise ConfigError(
                f"no picture can be drawn here: offscreen OpenGL does not work ({error}); "
                "install EGL (libegl1), or set MUJOCO_GL=osmesa with libosmesa6"
            ) from None
        self._scene = mujoco.MjvScene(self._model, MAX_GEOMS)
        # A software renderer spends nine tenths of a frame on shadows.
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0

    def draw(self, world: World, goal_position: Array) -> NDArray[np.uint8]:
        """Return an image (height, width, 3) of one moment.

        Raises:
            ConfigError: This is not the thread that made the renderer: an OpenGL context belongs to one thread.
        """
        if threading.get_ident() != self._thread:
            raise ConfigError(
                "pictures are drawn by the thread that drew the first one, because an OpenGL context belongs to one "
                "thread; render there, or make an environment in each thread"
            )
        state = world.robot
        self._data.mocap_pos[0] = goal_position
        place_cell(self._model, self._data, self._spec, state.q, state.driver_q, world.objects)
        mujoco.mj_forward(self._model, self._data)
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self._model, self._data, self._options, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        self._add_shadows(world)
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        frame = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(frame, None, self._viewport, self._context)
        return np.ascontiguousarray(frame[::-1])

    def _add_shadows(self, world: World) -> None:
        """Add a dark disc on the table below every object, which shows how high the object is."""
        for model in self._objects:
            (x, y, _), radius = world.objects[model.name].position, min(model.size_m[:2]) / 2.0
            mujoco.mjv_initGeom(
                self._scene.geoms[self._scene.ngeom], mujoco.mjtGeom.mjGEOM_CYLINDER,
                np.array([radius, SHADOW_M, 0.0]), np.array([x, y, self._spec.table_height_m]),
                np.eye(3).ravel(), np.array(SHADOW_RGBA, np.float32),
            )  # fmt: skip
            self._scene.ngeom += 1

    def close(self) -> None:
        """Free the OpenGL context; called from another thread, leave that to the end of the program."""
        if threading.get_ident() != self._thread:
            return
        self._context.free()
        self._gl.free()


def _gl_context(width: int, height: int) -> Any:
    """Make the context that MUJOCO_GL names, or an EGL one if there is no display, or else MuJoCo's own.

    MuJoCo reads the variable when it is first imported, which is too early to expect a program to have set it.
    """
    wanted = drawing_library()
    if wanted == "egl" and sys.platform == "linux":
        from mujoco.egl import GLContext
    elif wanted == "osmesa":
        from mujoco.osmesa import GLContext
    else:
        from mujoco.gl_context import GLContext
    return GLContext(width, height)
