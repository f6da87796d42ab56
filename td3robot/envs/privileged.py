"""What only a simulation knows, for critics that see the truth while the policy sees what hardware can supply."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from td3robot.layout import Field, Layout
from td3robot.robots.interface import Robot, RobotSpec
from td3robot.robots.objects import Objects
from td3robot.state import Array, ObjectModel
from td3robot.tasks.interface import Goals, Task, TaskState

# What is drawn for an episode: its value in an undisturbed cell, and a typical difference from it, which is 1 here.
DRAWN: Mapping[str, tuple[float, float]] = {
    "action_delay_s": (0.0, 0.1), "observation_delay_s": (0.0, 0.1), "camera_interval_s": (0.0, 0.05),
    "camera_latency_s": (0.0, 0.1), "camera_drop": (0.0, 0.1), "camera_hidden_m": (0.0, 0.05),
    "servo_stiffness": (1.0, 0.3), "servo_lag": (1.0, 0.3), "servo_damping": (1.0, 0.5),
    "joint_friction_rad": (0.0, 0.00025), "payload_kg": (0.0, 0.3),
    "table_offset_m": (0.0, 0.005), "tool_offset_x_m": (0.0, 0.003), "tool_offset_y_m": (0.0, 0.003),
    "tool_offset_z_m": (0.0, 0.003), "gripper_speed": (1.0, 0.5), "gripper_delay_s": (0.0, 0.1),
    "object_mass_kg": (0.0, 0.1), "object_friction": (0.0, 0.3), "object_scale": (1.0, 0.1),
}  # fmt: skip
SHORTEST_S = 1e-6  # between two states; a state that is asked for twice shows no motion


class Privileged:
    """The true, undelayed state of rows, as a second vector beside their observations.

    It holds what the task observes, computed from the true state; the joints' and the objects' velocities; and what was
    drawn for the episode, each relative to an undisturbed cell. What is observed of the last command is left out: that
    is known without error.

    Args:
        task: The task.
        spec: The robot.
        objects: The task's objects.
        count: How many rows.

    Attributes:
        layout: Its fields, after those of the observation.
    """

    def __init__(self, task: Task, spec: RobotSpec, objects: Sequence[ObjectModel], count: int) -> None:
        self._task, self._names = task, tuple(item.name for item in objects)
        self._kept = tuple(field for field in task.layout.fields if field.source != "guard")
        self._nominal = {name: nominal for name, (nominal, _) in DRAWN.items()}
        if objects:
            self._nominal |= {"object_mass_kg": objects[0].mass_kg, "object_friction": objects[0].friction}
        fields = [Field(f"true_{each.name}", each.components, each.unit, "simulator") for each in self._kept]
        fields.append(Field("true_dq", spec.arm.joint_names, "rad/s", "simulator"))
        fields += [Field(f"true_{name}_velocity", ("x", "y", "z"), "m/s", "simulator") for name in self._names]
        self.layout = Layout([*fields, Field("drawn", tuple(DRAWN), "1", "simulator")])
        self._drawn = np.zeros((count, len(DRAWN)))
        self._positions, self._stamps = np.zeros((len(self._names), count, 3)), np.full(count, -np.inf)

    def begin(self, row: int, robot: Robot, objects: Objects) -> None:
        """Begin a row's episode with what its robot and its objects have drawn."""
        values = self._nominal | robot.drawn() | objects.drawn()
        self._drawn[row] = [(values[name] - self._nominal[name]) / scale for name, (_, scale) in DRAWN.items()]
        self._stamps[row] = -np.inf

    def observe(self, state: TaskState, goals: Goals, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the vectors (k, size) of some rows; velocities are over the time since the last call.

        Args:
            state: True states of these rows.
            goals: Their goals.
            rows: (k,) which rows.
        """
        observed = self._task.observe(state, goals)
        values: dict[str, Array] = {f"true_{field.name}": observed[field.name] for field in self._kept}
        seconds = np.maximum(state.stamp - self._stamps[rows], SHORTEST_S)[:, None]
        for index, name in enumerate(self._names):
            position = state.objects[name].position
            values[f"true_{name}_velocity"] = (position - self._positions[index, rows]) / seconds
            self._positions[index, rows] = position
        self._stamps[rows] = state.stamp
        return self.layout.pack(values | {"true_dq": state.dq, "drawn": self._drawn[rows]}, len(rows))
