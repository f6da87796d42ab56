"""Hand-written policies: they show that a task can be done, guide trainings, and are a baseline for learned ones."""

from math import copysign
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from td3robot.config import RobotEnvironmentConfig
from td3robot.config.robot import TURN_RAD_S, ActionConfig
from td3robot.errors import ConfigError
from td3robot.layout import Layout
from td3robot.registry import SCRIPTS
from td3robot.robots.interface import RobotSpec
from td3robot.tasks.grasp import GraspConfig, empty_beyond, over
from td3robot.tasks.place import PlaceConfig
from td3robot.tasks.push import PushConfig, pushing_height

# Descend only within this distance of the vertical over the object [m] and this turn [rad]; close within this [m].
OVER, ALIGNED, AT = 0.005, 0.05, 0.006
# ... and once the commanded tool is slower than this [m/s].
SLOW = 0.06
# Carry a held object sideways only this far above the table [m].
CARRIED = 0.03
# Push once this near to the point behind the object [m], and down to within this of the height to push from [m]: closed
# fingers are a wedge, and coming down beside the object, they jam it against the table. Push by this share of the way
# to its goal, at least and at most so far ahead of the commanded tool [m], while that is at most so far ahead of the
# point from which it pushes [m]; stop within this share of the tolerance.
BEHIND, DOWN, PUSH_GAIN, PUSH_LEAST, PUSH_MOST, PUSH_AHEAD, STOPS = 0.015, 0.003, 0.2, 0.005, 0.008, 0.045, 0.55
# Share of the remaining distance that one action asks for: the arm responds over several periods.
GAIN = 0.5
# Fingers closed further than commanded by this fraction, more than noise and bias, are opening.
OPENING = 0.03


class Script(Protocol):
    """A hand-written policy."""

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (size,) for an observation (size,)."""


class ScriptedReach:
    """Move the commanded tool straight to the goal, by ``tcp_delta``; arguments as for :class:`ScriptedGrasp`."""

    def __init__(self, layout: Layout, tool_step_m: float, action: ActionConfig) -> None:
        self._layout, self._tool_step, self._asked = layout, tool_step_m, action

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (3,): tool displacement."""
        seen = self._layout.unpack(observation.astype(np.float64))
        return _step(self._asked, seen["goal_from_tcp"] - seen["commanded_from_tcp"], self._tool_step)


class ScriptedReachPose:
    """Move the commanded tool straight to the goal, and turn it on the way; arguments as for :class:`ScriptedGrasp`."""

    def __init__(self, layout: Layout, tool_step_m: float, turn_step_rad: float, action: ActionConfig) -> None:
        self._layout, self._tool_step, self._turn_step, self._asked = layout, tool_step_m, turn_step_rad, action

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (6,): tool displacement, turn about each axis."""
        seen = self._layout.unpack(observation.astype(np.float64))
        way = seen["goal_from_tcp"] - seen["commanded_from_tcp"]
        turn = _step(self._asked, seen["turn_left"], self._turn_step)
        return np.array([*_step(self._asked, way, self._tool_step), *turn], np.float32)


class ScriptedGrasp:
    """Hover over the object, turn, descend, close, lift and hold; open and try again if nothing is held.

    It is stateless: it decides by the current observation of the grasp task alone. Its actions are ``tcp_delta``.

    Args:
        layout: The grasp task's observation.
        tool_step_m: How far a full action moves the tool in one period.
        turn_step_rad: How far a full action turns it.
        action: What an action means.
    """

    turn = "object_turn"

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
        item = config.item
        self._tell(item.grip_width_m, item.size_m[2])

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (5,): tool displacement, turn, gripper."""
        seen = self._layout.unpack(observation.astype(np.float64))
        if "object_size" in seen:
            self._tell(seen["object_size"][0], seen["object_size"][2])
        way = seen["target_from_commanded"]
        # If a tracker reports the object too low, the tool goes no further down than the guard lets it.
        way[2] = max(way[2], self._lowest - seen["commanded_position"][2])
        turn, commanded = float(seen[self.turn][0]), float(seen["commanded_gripper"][0])
        closed = self._gripper.closed_fraction(seen["driver_q"])
        empty = closed > self._empty_beyond
        opening = closed > commanded + OPENING
        if empty or opening or (commanded < 0.5 and not self._ready(way, turn, seen["commanded_velocity"])):
            return self._action(self._approach(way, turn), turn, gripper=-1.0)
        if not seen["held"][0]:
            return self._action(np.zeros(3), 0.0, gripper=1.0)
        return self._action(way, 0.0, gripper=1.0)

    def _tell(self, width_m: float, height_m: float) -> None:
        """Note the size of the object: how wide it is between the pads, and how high."""
        # Height above the grasp point while the tool is not yet over the object [m].
        self._hover = over(height_m, self._gripper.jaw)
        self._empty_beyond = empty_beyond(self._gripper.closed_on(width_m))

    def _ready(self, way: NDArray[np.float64], turn: float, velocity: NDArray[np.float64]) -> bool:
        return bool(np.linalg.norm(way) < AT and np.linalg.norm(velocity) < SLOW and abs(turn) < ALIGNED)

    def _approach(self, way: NDArray[np.float64], turn: float) -> NDArray[np.float64]:
        there = np.hypot(way[0], way[1]) < OVER and abs(turn) < ALIGNED
        return way if there else way + np.array([0.0, 0.0, self._hover])

    def _action(self, way: NDArray[np.float64], turn: float, gripper: float) -> NDArray[np.float32]:
        turned = _component(self._asked, GAIN * turn / self._turn_step)
        return np.array([*_step(self._asked, way, self._tool_step), turned, gripper], np.float32)


class ScriptedPlace(ScriptedGrasp):
    """Fetch the object as :class:`ScriptedGrasp` does, carry it to its goal, lower it, open, and leave it."""

    turn = "turn_left"

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (5,): tool displacement, turn, gripper."""
        seen = self._layout.unpack(observation.astype(np.float64))
        if not (seen["placed"][0] or seen["held"][0]):
            return super().act(observation)
        way, turn = seen["target_from_commanded"], float(seen["turn_left"][0])
        if seen["placed"][0]:
            return self._action(way, 0.0, gripper=-1.0)
        beside = np.hypot(*seen["goal_from_object"][:2])
        if beside > OVER and seen["goal_from_object"][2] > -CARRIED:
            way = way * [0.0, 0.0, 1.0]  # up first: a low object would be dragged over the table
        elif abs(turn) > ALIGNED:
            way = way * [1.0, 1.0, 0.0]  # turn before it comes down
        return self._action(way, turn, gripper=-1.0 if seen["may_open"][0] else 1.0)


class ScriptedPush:
    """Go around the object over it, come down behind it, and push it straight to its goal, slower and slower.

    Where the object turns or slips aside, the point behind it moves, and the tool follows it. Arguments as for
    :class:`ScriptedGrasp`.
    """

    def __init__(
        self, layout: Layout, config: PushConfig, spec: RobotSpec, tool_step_m: float, action: ActionConfig
    ) -> None:
        self._layout, self._tool_step, self._asked = layout, tool_step_m, action
        self._tolerance, self._height = config.tolerance_m, pushing_height(spec, config)

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the action (3,): tool displacement."""
        seen = self._layout.unpack(observation.astype(np.float64))
        left, way = seen["goal_from_object"], seen["behind_from_commanded"]
        distance = float(np.linalg.norm(left))
        if distance < STOPS * self._tolerance:
            return np.zeros(3, np.float32)
        towards = left / distance
        ahead = -float(towards @ way[:2])
        aside = way[:2] + ahead * towards
        low = float(seen["commanded_position"][2]) < self._height + BEHIND
        if low and way[2] > BEHIND:
            way = way * [0.0, 0.0, 1.0]  # up first, or it would go through the object
        elif low and way[2] > -DOWN and np.linalg.norm(aside) < BEHIND and -BEHIND < ahead < 2.0 * PUSH_AHEAD:
            further = min(max(PUSH_GAIN * distance, PUSH_LEAST), PUSH_MOST, PUSH_AHEAD - ahead)
            way = np.array([*aside + towards * further, way[2]])
        return _step(self._asked, way, self._tool_step)


def _step(asked: ActionConfig, way: NDArray[np.float64], full: float) -> NDArray[np.float32]:
    """Return the components (3,) that move or turn the tool by a share of a way (3,), at full speed at most."""
    step = GAIN * way / full
    step /= max(float(np.linalg.norm(step)), 1.0)
    return np.array([_component(asked, each) for each in step.tolist()], np.float32)


def _component(asked: ActionConfig, share: float) -> float:
    """Return the component of an action that asks for a share of full speed, with its sign."""
    return copysign(asked.length(min(abs(share), 1.0)), share)


def scripted_reach(
    layout: Layout, config: Any, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedReach:
    """Make the script for an environment's configuration."""
    return ScriptedReach(layout, max_tcp_speed_m_s * action.speed_fraction * spec.period_s, action)


def scripted_reach_pose(
    layout: Layout, config: Any, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedReachPose:
    """Make the script for an environment's configuration."""
    tool_step = max_tcp_speed_m_s * action.speed_fraction * spec.period_s
    return ScriptedReachPose(layout, tool_step, TURN_RAD_S * spec.period_s, action)


def scripted_place(
    layout: Layout, config: PlaceConfig, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedPlace:
    """Make the script for an environment's configuration."""
    tool_step = max_tcp_speed_m_s * action.speed_fraction * spec.period_s
    return ScriptedPlace(layout, config, spec, tool_step, TURN_RAD_S * spec.period_s, action)


def scripted_grasp(
    layout: Layout, config: GraspConfig, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedGrasp:
    """Make the script for an environment's configuration."""
    tool_step = max_tcp_speed_m_s * action.speed_fraction * spec.period_s
    return ScriptedGrasp(layout, config, spec, tool_step, TURN_RAD_S * spec.period_s, action)


def scripted_push(
    layout: Layout, config: PushConfig, action: ActionConfig, spec: RobotSpec, max_tcp_speed_m_s: float
) -> ScriptedPush:
    """Make the script for an environment's configuration."""
    tool_step = max_tcp_speed_m_s * action.speed_fraction * spec.period_s
    return ScriptedPush(layout, config, spec, tool_step, action)


SCRIPTS.register("reach", scripted_reach)
SCRIPTS.register("reach_pose", scripted_reach_pose)
SCRIPTS.register("grasp", scripted_grasp)
SCRIPTS.register("place", scripted_place)
SCRIPTS.register("stack", scripted_place)
SCRIPTS.register("push", scripted_push)


def script_of(config: RobotEnvironmentConfig, layout: Layout, spec: RobotSpec) -> Script:
    """Make the hand-written policy of an environment's task.

    Raises:
        ConfigError: The task has none, or its actions move joints.
    """
    if config.task.name not in SCRIPTS:
        raise ConfigError(f"the task {config.task.name!r} has no hand-written policy; those of {', '.join(SCRIPTS)} do")
    if config.action.kind != "tcp_delta":
        raise ConfigError(
            f"the hand-written policies move the tool, and the actions here are {config.action.kind!r}; choose a "
            "configuration with environment.action.kind tcp_delta"
        )
    made: Script = SCRIPTS[config.task.name](layout, config.task, config.action, spec, config.guard.max_tcp_speed_m_s)
    return made
