"""Offscreen images of the cell, from joint angles alone: the same for any robot."""

from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.offscreen import Offscreen
from td3robot.robots.simulated.scene import place_cell, reshape, simulation_spec
from td3robot.state import Array, ObjectModel, World

GOAL_RADIUS_M = 0.015
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
        self._offscreen = Offscreen(self._model, width, height)

    def become(self, models: Mapping[str, ObjectModel]) -> None:
        """Draw other objects of the same names."""
        self._objects = tuple(models.get(item.name, item) for item in self._objects)
        for item in models.values():
            reshape(self._model, item)

    def draw(self, world: World, goal_position: Array) -> NDArray[np.uint8]:
        """Return an image (height, width, 3) of one moment.

        Raises:
            ConfigError: This is not the thread that made the renderer: an OpenGL context belongs to one thread.
        """
        self._offscreen.require_thread()
        state = world.robot
        self._data.mocap_pos[0] = goal_position
        place_cell(self._model, self._data, self._spec, state.q, state.driver_q, world.objects)
        mujoco.mj_forward(self._model, self._data)
        scene = self._offscreen.scene
        mujoco.mjv_updateScene(
            self._model, self._data, self._options, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, scene
        )
        self._add_shadows(world)
        return self._offscreen.draw()

    def _add_shadows(self, world: World) -> None:
        """Add a dark disc on the table below every object, which shows how high the object is."""
        scene = self._offscreen.scene
        for model in self._objects:
            (x, y, _), radius = world.objects[model.name].position, min(model.size_m[:2]) / 2.0
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_CYLINDER,
                np.array([radius, SHADOW_M, 0.0]), np.array([x, y, self._spec.table_height_m]),
                np.eye(3).ravel(), np.array(SHADOW_RGBA, np.float32),
            )  # fmt: skip
            scene.ngeom += 1

    def close(self) -> None:
        """Free the OpenGL context; called from another thread, leave that to the end of the program."""
        self._offscreen.close()
