"""How a simulated cell differs from its model during an episode."""

from dataclasses import dataclass

import mujoco
import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import GRIPPER_PREFIX, TABLE_GEOM
from td3robot.state import Array, ObjectModel


@dataclass(frozen=True, slots=True)
class Variation:
    """Physical differences from the nominal cell.

    Attributes:
        servo_stiffness, servo_lag: Factors on the arm's servos.
        payload_kg: Mass at the gripper that the controller does not know of.
        table_offset_m: How much higher the table top is than configured.
        object_mass_kg: The object's mass, if it differs.
        object_friction: Sliding friction of pads and object, if it differs.
        object_scale: Factor on every extent of the object.
        tool_offset_m: (3,) from the assumed to the true position of the tool, along the axes of its parent body.
        gripper_speed: Share of the fingers' fastest speed.
        gripper_delay_s: From a new position to their first motion.
    """

    servo_stiffness: float = 1.0
    servo_lag: float = 1.0
    payload_kg: float = 0.0
    table_offset_m: float = 0.0
    object_mass_kg: float | None = None
    object_friction: float | None = None
    object_scale: float = 1.0
    tool_offset_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gripper_speed: float = 1.0
    gripper_delay_s: float = 0.0


class VariedModel:
    """A compiled model to which variations are applied, each from its nominal values."""

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec, objects: tuple[ObjectModel, ...]) -> None:
        joints = len(robot.arm.home)
        self._model, self._joints, self._objects = model, joints, objects
        self._gain, self._bias = model.actuator_gainprm[:joints].copy(), model.actuator_biasprm[:joints].copy()
        self._hand = model.body(GRIPPER_PREFIX + robot.gripper.palm).id
        self._hand_mass = float(model.body_mass[self._hand])
        self._base = model.body(GRIPPER_PREFIX + robot.gripper.base).id
        self._base_place = model.body_pos[self._base].copy()
        self._table = model.geom(TABLE_GEOM).id
        self._table_height = float(model.geom_pos[self._table, 2])
        self._pads = [
            i
            for i in range(model.ngeom)
            if model.geom(i).name.startswith(GRIPPER_PREFIX) and robot.gripper.pads in model.geom(i).name
        ]
        self._size = {item.name: model.geom(item.name).size.copy() for item in objects}
        self._inertia = {item.name: model.body(item.name).inertia.copy() for item in objects}
        self._lift, self._scale = 0.0, 1.0
        self._scratch = mujoco.MjData(model)

    def apply(self, variation: Variation) -> None:
        """Set every number that the variation touches."""
        model, n = self._model, self._joints
        stiffness = variation.servo_stiffness
        model.actuator_gainprm[:n] = self._gain * stiffness
        model.actuator_biasprm[:n] = self._bias * stiffness
        model.actuator_biasprm[:n, 2] *= variation.servo_lag
        # The arm keeps compensating the weight that it knows of.
        model.body_mass[self._hand] = self._hand_mass + variation.payload_kg
        model.body_gravcomp[self._hand] = self._hand_mass / (self._hand_mass + variation.payload_kg)
        model.body_pos[self._base] = self._base_place + variation.tool_offset_m
        model.geom_pos[self._table, 2] = self._table_height + variation.table_offset_m
        self._lift = variation.table_offset_m
        self._scale = variation.object_scale
        for item in self._objects:
            self._apply_to_object(item, variation)
        mujoco.mj_setConst(model, self._scratch)

    def lifts(self, name: str) -> Array:
        """Return the upward shift (3,) of an object from the nominal cell, due to its table and its size [m]."""
        height = next(item.size_m[2] for item in self._objects if item.name == name)
        return np.array([0.0, 0.0, self._lift + (self._scale - 1.0) * height / 2])

    def _apply_to_object(self, item: ObjectModel, variation: Variation) -> None:
        model, scale = self._model, variation.object_scale
        geom, body = model.geom(item.name), model.body(item.name)
        mass = item.mass_kg if variation.object_mass_kg is None else variation.object_mass_kg
        body.mass[:] = mass
        body.inertia[:] = self._inertia[item.name] * (mass / item.mass_kg) * scale**2
        geom.size[:] = self._size[item.name] * scale
        x, y, z = item.size_m
        half = np.array([x, y, z]) / 2 * scale
        model.geom_aabb[geom.id, 3:] = half
        radius = np.hypot(half[0], half[2]) if item.shape == "cylinder" else np.linalg.norm(half)
        model.geom_rbound[geom.id] = radius
        friction = item.friction if variation.object_friction is None else variation.object_friction
        model.geom_friction[self._pads, 0] = friction
