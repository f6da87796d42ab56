"""How episodes begin: reachable goals, and starts that the guard admits."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from td3robot.config import Box
from td3robot.errors import ConfigError
from td3robot.robots.guard import Guard
from td3robot.robots.interface import Robot
from td3robot.state import Array
from td3robot.tasks.interface import Goal, Task

# Draws until a goal is reachable and its start admissible; a box that needs more is at fault.
MAX_DRAWS = 100
# Points along each axis at which a box is checked for reachability.
GRID = 5


class InitialState(NamedTuple):
    """How an episode begins.

    Attributes:
        goal: The goal of the episode.
        q: (n,) the arm's joint angles [rad].
        gripper: The gripper's closed fraction.
    """

    goal: Goal
    q: Array
    gripper: float = 0.0


class InitialStateSampler:
    """Draws how the episodes of a task begin.

    Args:
        task: Samples the goals.
        guard: Has to admit every start; asking does not change its state.
        goals: The box from which goals are sampled, in the base frame [m].
        practice: Whether episodes may begin where there is most to learn; see the task.
    """

    def __init__(self, task: Task, guard: Guard, goals: Box, practice: bool = False) -> None:
        self.practice = practice
        self._task, self._guard, self._goals = task, guard, goals

    def draw(self, rng: np.random.Generator) -> InitialState:
        """Sample a reachable goal and an admissible start.

        Raises:
            ConfigError: No draw had both.
        """
        violation = ""
        for _ in range(MAX_DRAWS):
            goal = self._task.sample(rng, self.practice)
            reachable, why = self.posture_at(goal.position)
            if reachable is None:
                violation = f"the tool at the goal, {why}"
                continue
            q, why = self.posture_at(goal.start)
            if q is not None:
                return InitialState(goal, q)
            violation = f"the tool at the start, {why}"
        raise ConfigError(
            f"no admissible start was found in {MAX_DRAWS} draws (the last: {violation}); check task and guard"
        )

    def given(self, goal: Goal, position: Array) -> Goal:
        """Return a sampled goal with a given position (3,) [m] in its place.

        Raises:
            ConfigError: The task's goal is an object, or the position is outside the box or out of reach.
        """
        if not self._task.takes_goal:
            raise ConfigError("the goal of this task is where its object lies, and cannot be given; leave --goal out")
        box = self._goals
        if position.shape != (3,) or not ((position >= box.low) & (position <= box.high)).all():
            raise ConfigError(
                f"the goal {np.round(position, 3).tolist()} m is outside {box.low}..{box.high} m, for which the policy "
                "was trained"
            )
        _, violation = self.posture_at(position)
        if violation:
            raise ConfigError(f"the goal {np.round(position, 3).tolist()} m cannot be reached: {violation}")
        return replace(goal, position=position)

    def standing(self, goal: Goal, robot: Robot) -> InitialState:
        """Return a start where the arm stands, with its gripper as it is.

        Raises:
            RobotError: The guard does not admit that posture.
        """
        state = robot.read()
        self._guard.reset(state.q)
        self._guard.require_admitted(state.q)
        closed = min(max(robot.spec.gripper.closed_fraction(state.driver_q), 0.0), 1.0)
        return InitialState(replace(goal, gripper=closed), state.q, closed)

    def require_reachable(self, region: str, low: Array, high: Array) -> None:
        """Refuse a box of goals that the arm cannot reach everywhere, on a grid of ``GRID`` points per axis.

        Raises:
            ConfigError: Naming the first point out of reach, or the limit that a posture there violates; or the arm's
                own bodies that are too close at home.
        """
        if self._guard.kinematics.too_close(self._guard.home):
            raise ConfigError(
                f"at home, {self._closest(self._guard.home)}; if they share a housing, add the pair to the arm's "
                "touching, otherwise change its home"
            )
        axes = [np.linspace(a, b, GRID) for a, b in zip(low, high, strict=True)]
        for point in np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3):
            q, violation = self.posture_at(point)
            if q is None:
                x, y, z = point
                raise ConfigError(
                    f"{region} holds ({x:.3f}, {y:.3f}, {z:.3f}) m, which the arm cannot reach ({violation}); "
                    "move or shrink the box"
                )

    def posture_at(self, position: Array) -> tuple[Array | None, str]:
        """Return a posture (n,) [rad] that has the tool at a position (3,) [m] and the guard admits, or None and why.

        The tool points as at home if it can. If it cannot (far and high), any direction will do, unless the task turns
        the tool.
        """
        home, kinematics = self._guard.home, self._guard.kinematics
        violation = "no inverse kinematics solution from home"
        for rotation in (kinematics.tcp(home).rotation, *([] if self._task.turns_tool else [None])):
            q = kinematics.inverse(position, home, rotation)
            if q is not None:
                limit = self._guard.admits(q)
                if limit is None:
                    return q, ""
                violation = f"the guard's limit: {limit}"
                if limit == "clearance":
                    violation += f", {self._closest(q)}"
        return None, violation

    def _closest(self, q: Array) -> str:
        """Name the two bodies that come too close to each other in a posture q (n,) [rad]."""
        kinematics = self._guard.kinematics
        pair = kinematics.closest_pair(q)
        assert pair is not None, "a posture without close bodies keeps its clearance"
        first, second, apart = pair
        if apart < 0.0:
            return f"{first} and {second} overlap by {-1e3 * apart:.0f} mm"
        kept = 1e3 * kinematics.clearance_m
        return f"{first} and {second} are {1e3 * apart:.1f} mm apart (the guard keeps {kept:g} mm)"
