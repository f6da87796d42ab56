"""A hand-written grasp: it shows that the task can be done, and learned policies are compared with it."""

from math import copysign

import numpy as np
from numpy.typing import NDArray

from td3robot.config.robot import TURN_RAD_S, ActionConfig
from td3robot.layout import Layout
from td3robot.robots.interface import RobotSpec
from td3robot.tasks.grasp import GraspConfig, empty_beyond, over

# Descend only within this distance of the vertical over the object [m] and this turn [rad]; close within this [m].
OVER, ALIGNED, AT = 0.005, 0.05, 0.006
# ... and once the commanded tool is slower than this [m/s].
SLOW = 0.06
# Share of the remaining distance that one action asks for: the arm responds over several periods.
GAIN = 0.5
# Fingers closed further than commanded by this fraction, more than noise and bias, are opening.
OPENING = 0.03


class ScriptedGrasp:
    """Hover over the object, turn, descend, close, lift and hold; open and try again if nothing is held.

    It is stateless: it decides by the current observation of the grasp task alone. Its actions are ``tcp_delta``.

    Args:
        layout: The grasp task's observation.
        tool_step_m: How far a full action moves the tool in one period.
        turn_step_rad: How far a full action turns it.
        action: What an action means.
    """

    def __init__(
        self,
        layout: Layout,
        config: GraspConfig,
        spec: RobotSpec,
        tool_step_m: float,
        turn_step_rad: float,
        action: ActionConfig,
    ) -> None:
        self._asked = action
        self._layout, self._tool_step, self._turn_step = layout, tool_step_m, turn_step_rad
        self._gripper = spec.gripper
        self._lowest = spec.table_height_m + spec.gripper.jaw.grasp_height_m
        # Height above the grasp point while the tool is not yet over the object [m].
        self._hover = over(config.object, spec.gripper.jaw)
        self._empty_beyond = empty_beyond(spec.gripper.closed_on(config.object.grip_width_m))

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (5,): tool displacement, turn, gripper."""
        seen = self._layout.unpack(observation.astype(np.float64))
        way = seen["target_from_commanded"]
        # If a tracker reports the object too low, the tool goes no further down than the guard lets it.
        way[2] = max(way[2], self._lowest - seen["commanded_position"][2])
        turn, commanded = float(seen["object_turn"][0]), float(seen["commanded_gripper"][0])
        closed = self._gripper.closed_fraction(seen["driver_q"])
        empty = closed > self._empty_beyond
        opening = closed > commanded + OPENING
        if empty or opening or (commanded < 0.5 and not self._ready(way, turn, seen["commanded_velocity"])):
            return self._action(self._approach(way, turn), turn, gripper=-1.0)
        if not seen["held"][0]:
            return self._action(np.zeros(3), 0.0, gripper=1.0)
        return self._action(way, 0.0, gripper=1.0)

    def _ready(self, way: NDArray[np.float64], turn: float, velocity: NDArray[np.float64]) -> bool:
        return bool(np.linalg.norm(way) < AT and np.linalg.norm(velocity) < SLOW and abs(turn) < ALIGNED)

    def _approach(self, way: NDArray[np.float64], turn: float) -> NDArray[np.float64]:
        there = np.hypot(way[0], way[1]) < OVER and abs(turn) < ALIGNED
        return way if there else way + np.array([0.0, 0.0, self._hover])

    def _action(self, way: NDArray[np.float64], turn: float, gripper: float) -> NDArray[np.float32]:
        step = GAIN * way / self._tool_step
        step = np.array([self._component(each) for each in (step / max(float(np.linalg.norm(step)), 1.0)).tolist()])
        return np.array([*step, self._component(GAIN * turn / self._turn_step), gripper], np.float32)

    def _component(self, share: float) -> float:
        """Return the component of an action that asks for a share of full speed, with its sign."""
        return copysign(self._asked.length(min(abs(share), 1.0)), share)


def scripted_grasp(
    layout: Layout, config: GraspConfig, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedGrasp:
    """Make the script for an environment's configuration."""
    tool_step = max_tcp_speed_m_s * action.speed_fraction * spec.period_s
    return ScriptedGrasp(layout, config, spec, tool_step, TURN_RAD_S * spec.period_s, action)
