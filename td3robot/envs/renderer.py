"""Offscreen pictures of the cell, from joint angles alone: the same for any robot."""

import os
import sys

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ConfigError
from td3robot.robots.interface import RobotSpec
from td3robot.robots.scene import set_gripper, simulation_spec
from td3robot.state import Array, RobotState

GOAL_RADIUS_M = 0.015


class Renderer:
    """Draw the arm, its gripper, the table and a goal.

    Raises:
        ConfigError: There is no OpenGL to draw with.
    """

    def __init__(self, spec: RobotSpec, width: int = 640, height: int = 480) -> None:
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            os.environ.setdefault("MUJOCO_GL", "egl")
        scene = simulation_spec(spec, physics_rate_hz=500)
        scene.worldbody.add_geom(
            name="goal", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[GOAL_RADIUS_M, 0, 0],
            contype=0, conaffinity=0, rgba=[0.10, 0.65, 0.35, 0.9],
        )  # fmt: skip
        self._model = scene.compile()
        self._data = mujoco.MjData(self._model)
        self._goal = self._model.geom("goal").id
        self._camera = mujoco.MjvCamera()
        self._camera.lookat[:] = [0.0, 0.35, 0.25]
        self._camera.distance, self._camera.azimuth, self._camera.elevation = 1.9, -125.0, -22.0
        try:
            self._renderer = mujoco.Renderer(self._model, height, width)
        except Exception as error:  # noqa: BLE001  # MuJoCo raises whatever the platform's OpenGL loader raises
            raise ConfigError(
                f"no picture can be drawn here: offscreen OpenGL does not work ({error}); "
                "install EGL (libegl1), or set MUJOCO_GL=osmesa with libosmesa6"
            ) from None

    def draw(self, state: RobotState, goal_position: Array) -> NDArray[np.uint8]:
        """Draw one moment (height, width, 3)."""
        self._data.qpos[: len(state.q)] = state.q
        set_gripper(self._model, self._data, state.driver_q)
        self._model.geom_pos[self._goal] = goal_position
        mujoco.mj_forward(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        # A software renderer spends nine tenths of a frame on shadows.
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        frame: NDArray[np.uint8] = self._renderer.render()
        return frame

    def close(self) -> None:
        """Free the drawing context."""
        self._renderer.close()
