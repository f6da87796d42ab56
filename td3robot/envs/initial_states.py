"""How episodes begin: reachable goals, and starts that the guard admits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from td3robot.config import Box
from td3robot.errors import ConfigError, RobotError
from td3robot.robots.guard import Guard
from td3robot.robots.interface import Robot
from td3robot.state import Array, Pose
from td3robot.tasks.interface import Goal, Task

# Draws until a goal is reachable and its start admissible; a box that needs more is at fault.
MAX_DRAWS = 100
# Points along each axis at which a box is checked for reachability.
GRID = 5
# A joint further than this from where an episode with the same tool position begins is on another branch of the arm's
# kinematics, or a turn away, or the gripper was mounted turned [rad].
BRANCH_RAD = 1.2


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

    def draw(self, rng: np.random.Generator, given: Array | None = None) -> InitialState:
        """Sample a reachable goal and an admissible start.

        Args:
            rng: Draws them.
            given: The numbers of a goal in place of the sampled one.

        Raises:
            ConfigError: No draw had both, or the given goal is not possible.
        """
        violation = ""
        for _ in range(MAX_DRAWS):
            goal = self._task.sample(rng, self.practice)
            reachable, why = self.posture_of(goal)
            if reachable is None:
                violation = f"the tool at the goal, {why}"
                continue
            q, why = self.posture_at(goal.start)
            if q is None:
                violation = f"the tool at the start, {why}"
                continue
            if given is not None:
                goal = self.given(goal, given)
                if (objection := self._task.objection(goal, goal.objects)) is not None:
                    violation = objection
                    continue
            return InitialState(goal, q)
        raise ConfigError(
            f"no admissible start was found in {MAX_DRAWS} draws (the last: {violation}); check task and guard"
        )

    def given(self, goal: Goal, numbers: Array) -> Goal:
        """Return a sampled goal with one that a person gives in its place, by its numbers (k,) [m, rad].

        Raises:
            ConfigError: The task's goal is an object, the numbers have another form, or the goal is outside the box or
                out of reach.
        """
        if not self._task.takes_goal:
            raise ConfigError("the goal of this task is where its object lies, and cannot be given; leave --goal out")
        wanted = f"the goal {np.round(numbers, 3).tolist()} m"
        try:
            goal = self._task.given(goal, numbers)
        except ValueError:
            raise ConfigError(f"{wanted} is outside what this task takes, {self._task.goal_form}") from None
        box = self._goals
        if not ((goal.position >= box.low) & (goal.position <= box.high)).all():
            raise ConfigError(f"{wanted} is outside {box.low}..{box.high} m, for which the policy was trained")
        reachable, violation = self.posture_of(goal)
        if reachable is None:
            turned = " with that orientation" if self._task.tilts_tool else ""
            raise ConfigError(f"{wanted} cannot be reached{turned}: {violation}")
        return goal

    def require_goal(self, numbers: Array) -> None:
        """Refuse numbers (k,) [m, rad] that cannot be given as the goal; needs no robot that is connected.

        Raises:
            ConfigError: As in :meth:`given`.
        """
        self.given(self._task.sample(np.random.default_rng(0), practice=False), numbers)

    def objection(self, objects: Mapping[str, Pose], given: Array | None) -> str | None:
        """Return why no episode can begin with the objects where they lie, as a sentence, or None if one can.

        Args:
            objects: Their poses.
            given: The numbers (k,) of a goal [m, rad]; without them, a goal that cannot be asked for is drawn anew.
        """
        goal = self._task.sample(np.random.default_rng(0), practice=False)
        if given is not None:
            goal = self.given(goal, given)
        elif self._task.takes_goal:
            return None
        return self._task.objection(goal, objects)

    def among(self, goal: Goal, objects: Mapping[str, Pose], rng: np.random.Generator, given: Array | None) -> Goal:
        """Return a goal that can be asked for with the objects where they really lie; another one is drawn if needed.

        Raises:
            ConfigError: It was given.
        """
        for _ in range(MAX_DRAWS):
            objection = self._task.objection(goal, objects)
            if objection is None:
                return goal
            if given is not None:
                break
            other = self.draw(rng).goal
            goal = replace(goal, position=other.position, rotation=other.rotation)
        raise ConfigError(objection)

    def standing(self, goal: Goal, robot: Robot) -> InitialState:
        """Return a start where the arm stands, with its gripper as it is.

        Raises:
            RobotError: The guard does not admit that posture, or it is none in which training began.
        """
        state = robot.read()
        self._guard.reset(state.q)
        self._guard.require_admitted(state.q)
        self._require_trained(state.q, robot.spec.arm.joint_names)
        closed = min(max(robot.spec.gripper.closed_fraction(state.driver_q), 0.0), 1.0)
        kept = closed if self._task.gripper_kept is None else self._task.gripper_kept
        return InitialState(replace(goal, gripper=kept), state.q, closed)

    def _require_trained(self, q: Array, names: Sequence[str]) -> None:
        """Refuse a posture (n,) [rad] on another branch of the kinematics: a policy has learned what to do on one.

        Raises:
            RobotError: Naming the joint that is furthest off, and the posture with which an episode would begin there.
        """
        home = self._guard.home
        posture, _ = self.posture_at(self._guard.kinematics.tcp(q).position)
        posture = home if posture is None else posture
        worst = int(np.abs(q - posture).argmax())
        if abs(q[worst] - posture[worst]) > BRANCH_RAD:
            raise RobotError(
                f"the arm stands in a posture in which no episode of training began: {names[worst]} is at "
                f"{q[worst]:.2f} rad, and with the tool here it was at {posture[worst]:.2f}; begin an episode without "
                f"a given goal, which brings the arm to its start, or move it to {np.round(posture, 2).tolist()} rad"
            )

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

    def posture_of(self, goal: Goal) -> tuple[Array | None, str]:
        """Return a posture (n,) [rad] with the tool at a goal, as in :meth:`posture_at`."""
        return self.posture_at(goal.position, goal.rotation if self._task.tilts_tool else None)

    def posture_at(self, position: Array, wanted: Array | None = None) -> tuple[Array | None, str]:
        """Return a posture (n,) [rad] that has the tool at a position (3,) [m] and the guard admits, or None and why.

        The tool is turned as wanted (3, 3), or points as at home if it can. If it cannot (far and high), any direction
        will do, unless the task turns the tool.
        """
        home, kinematics = self._guard.home, self._guard.kinematics
        violation = "no inverse kinematics solution from home"
        down = kinematics.tcp(home).rotation
        any_way = wanted is None and not self._task.turns_tool
        for rotation in (down if wanted is None else wanted, *([None] if any_way else [])):
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
