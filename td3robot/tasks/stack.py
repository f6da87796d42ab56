"""Stack: pick an object up, set it down on top of another, open, and leave it there."""

from collections.abc import Mapping
from dataclasses import replace
from math import pi
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from td3robot.config.disturbance import DisturbanceConfig
from td3robot.config.objects import ObjectConfig
from td3robot.config.section import Box, NonNegative, refused
from td3robot.jit import kernel
from td3robot.layout import Field, Layout
from td3robot.registry import TASKS
from td3robot.robots.interface import ArmModel, GripperModel, Jaw, RobotSpec
from td3robot.row_math import lengths
from td3robot.state import Array, ObjectModel, Pose
from td3robot.tasks.grasp_formulas import ABOVE_TOP, FINGER_THICK, OBJECT, SEEN_WITHIN_S, heading_of
from td3robot.tasks.interface import Failure, Goal, Goals, Scores, TaskState, Transition
from td3robot.tasks.place import Place, PlaceConfig, PlaceRewards

SUPPORT = "support"
# Open fingers that come down around the object are this far from the support at least, however both are turned [m].
ROOM_M = 0.01
# In practice, an object that begins on the support is off its centre by this much at most, and this far above it, or a
# larger support would be inside it [m].
OFF_CENTRE_M, ABOVE_SUPPORT_M = 0.008, 0.004


class StackRewards(PlaceRewards):
    """Weights of the stack task's reward terms; :class:`Stack` has the formulas.

    Attributes:
        disturb: Penalty on moving the support.
    """

    disturb: NonNegative = 4.0


class StackConfig(PlaceConfig):
    """Pick an object up, set it down on top of another, open, and leave it there.

    Attributes:
        support: The object that stays on the table.
        tolerance_m, tolerance_deg: Within this distance of the middle of the support's top [m], and this turn of being
            square with it, the object is there.
        support_within_m: How far the support may end up from where it lay. Domain randomization itself moves objects by
            up to ``disturbance.object_nudge_m``.
    """

    name: Literal["stack"] = "stack"  # type: ignore[assignment]  # its own, not place's
    support: ObjectConfig = ObjectConfig()
    support_within_m: PositiveFloat = 0.06
    rewards: StackRewards = StackRewards()
    region: ClassVar[str] = "the task's patch, with start and stack above it,"
    title: ClassVar[str] = "stack"
    achieved: ClassVar[str] = "stacked"

    def space(self, table_height_m: float, gripper: GripperModel) -> Box:
        """Return the box that the tool must reach, in the base frame: from grasping to where it leaves the stack."""
        box, support = super().space(table_height_m, gripper), self.support.size_m[2]
        return Box(low=box.low, high=(*box.high[:2], round(box.high[2] + support, 6)))

    def objects(self) -> tuple[ObjectModel, ...]:
        """Return both objects; the one that is carried is the first."""
        return (*super().objects(), self.support.model(SUPPORT))

    def apart_m(self, jaw: Jaw) -> float:
        """Return how far apart the objects lie at the beginning, so that open fingers fit between them [m]."""
        return jaw.stroke_m / 2 + FINGER_THICK + self.support.across_m / 2 + ROOM_M

    def require_fit(self, arm: ArmModel, gripper: GripperModel, disturbance: DisturbanceConfig) -> None:
        """Refuse what place refuses, a support on which nothing stands, and a patch too small for both objects."""
        super().require_fit(arm, gripper, disturbance)
        width, least = self.support.grip_width_m, max(2.0 * self.tolerance_m, self.item.grip_width_m / 2.0)
        if width < least:
            raise refused(
                f"the support is {1e3 * width:g} mm wide, and an object of {1e3 * self.item.grip_width_m:g} mm that "
                f"is set down to within {1e3 * self.tolerance_m:g} mm needs {1e3 * least:g} mm to stand on; choose a "
                "wider support",
                "task",
                "support",
            )
        apart = self.apart_m(gripper.jaw)
        if np.hypot(*np.subtract(self.patch_high, self.patch_low)) < 2.0 * apart:
            raise ValueError(
                f"the patch {self.patch_low}..{self.patch_high} m is too small: object and support lie at least "
                f"{apart:.3f} m apart, so that the open fingers fit between them; widen patch_low and patch_high"
            )


class Stack(Place):
    """Pick an object up, set it down on top of another, the support, open, and leave it there.

    As :class:`Place`, with a goal that moves with the support: the middle of its top, at the heading nearest to the
    object's that is square with it. One more reward term, times its weight:

    * ``disturb``: minus the support's speed as a share of full tool speed, at most 1
    """

    Config = StackConfig
    name = "stack"
    takes_goal = False
    # The object's and the support's sizes are known to a tenth: the object is on the support a little higher or lower.
    release_m = 0.006

    def __init__(self, config: StackConfig, spec: RobotSpec, max_tcp_speed_m_s: float) -> None:
        super().__init__(config, spec, max_tcp_speed_m_s)
        self._apart_m = config.apart_m(spec.gripper.jaw)
        self._up_m = (config.support.size_m[2] + config.item.size_m[2]) / 2
        self._any_heading = config.support.symmetry == 0 or config.item.symmetry == 0
        # Open fingers that pass over the support, beside the object, are this far above the support's centre [m].
        self._over_support_m = config.support.size_m[2] / 2 + ABOVE_TOP + spec.gripper.jaw.fingertips_m
        self.layout = Layout([*self.layout.fields, Field("support_age", ("age",), "s", "tracker")])

    def to_json(self) -> dict[str, Any]:
        """Return place's terms, and the support's shape."""
        config = self.config
        assert isinstance(config, StackConfig)
        return super().to_json() | {"support": config.support.model_dump(mode="json")}

    def sample(self, rng: np.random.Generator, practice: bool) -> Goal:
        """Sample an object and a start as the grasp task does, and a support where the place task's goal would be.

        Where that is next to an object in the hand, in practice, the object begins on the support, turned anyhow.
        """
        goal, config = super().sample(rng, practice), self.config
        assert isinstance(config, StackConfig)
        lying, place, height = goal.objects[OBJECT], goal.position[:2], config.support.size_m[2]
        start, off = goal.start, place - lying.position[:2]
        if np.linalg.norm(off) < self._apart_m:
            place = lying.position[:2] + np.clip(off, -OFF_CENTRE_M, OFF_CENTRE_M)
            up = np.array([0.0, 0.0, height + ABOVE_SUPPORT_M])
            lying, start = replace(lying, position=lying.position + up), start + up
        support = Pose(np.array([*place, self._table + height / 2]), goal.rotation)
        return self.rebase(replace(goal, start=start), {OBJECT: lying, SUPPORT: support})

    def objection(self, goal: Goal, objects: Mapping[str, Pose]) -> str | None:
        """Refuse a support so near to the object that the fingers would come down on it."""
        apart = float(np.linalg.norm(objects[SUPPORT].position[:2] - objects[OBJECT].position[:2]))
        if apart >= self._apart_m or goal.begins_at_object:
            return None
        return (
            f"{SUPPORT!r} lies {1e3 * apart:.0f} mm from {OBJECT!r}, and the open fingers fit between them from "
            f"{1e3 * self._apart_m:.0f} mm on; move them apart"
        )

    def rebase(self, goal: Goal, objects: Mapping[str, Pose]) -> Goal:
        """Return the goal on top of the support where that lies; until the support is drawn, on the table."""
        if SUPPORT not in objects:
            return super().rebase(goal, objects)
        item, support = objects[OBJECT], objects[SUPPORT]
        place, rotation = tops(
            support.position[None], support.rotation[None], item.rotation[None], self._up_m, self._any_heading
        )
        return replace(
            goal, position=place[0] + [0.0, 0.0, self._numbers.raise_m], rotation=rotation[0], objects=objects
        )

    def observe(self, state: TaskState, goals: Goals) -> dict[str, Array]:
        """Return the place task's fields, with the goal on the support where it is seen now, and its age."""
        age_s: Array = np.minimum(state.objects[SUPPORT].age_s, SEEN_WITHIN_S)
        return {**super().observe(state, goals), "support_age": age_s}

    def score(self, transition: Transition) -> Scores:
        """Score one control period; an object on a support that was pushed away is not stacked."""
        scores, config = super().score(transition), self.config
        assert isinstance(config, StackConfig)
        before, now = (each.objects[SUPPORT].position for each in (transition.before, transition.state))
        share = np.minimum(lengths(now - before) / self._numbers.step_m, 1.0)
        terms = {**scores.terms, "disturb": -config.rewards.disturb * share}
        return Scores(terms, scores.achieved & ~self._pushed(transition), scores.distance_m)

    def failures(self, transition: Transition, gripped: NDArray[np.bool_]) -> list[Failure]:
        """Tell a support that was pushed away from what else fails in the place task."""
        pushed, far = self._pushed(transition), self._moved_m(transition)
        return [
            Failure("support_pushed", float(far[row])) if pushed[row] else failure
            for row, failure in enumerate(super().failures(transition, gripped))
        ]

    def lowest(self, state: TaskState) -> Array:
        """Keep open fingers above the object, as in the grasp task, and above the support."""
        lowest = super().lowest(state)
        return np.where(np.isfinite(lowest), np.maximum(lowest, self._over_support_m + _height(state, SUPPORT)), lowest)

    def _asked(self, state: TaskState, goals: Goals) -> tuple[Array, Array]:
        """Return where the objects' centres must end up (m, 3) [m], and how they must be turned there (m, 3, 3)."""
        item, support = state.objects[OBJECT], state.objects[SUPPORT]
        place, rotation = tops(support.position, support.rotation, item.rotation, self._up_m, self._any_heading)
        return place, rotation

    def _moved_m(self, transition: Transition) -> Array:
        """Return how far the supports (m,) are from where they lay [m]."""
        return lengths(transition.state.objects[SUPPORT].position - transition.goals.objects[SUPPORT].position)

    def _pushed(self, transition: Transition) -> NDArray[np.bool_]:
        """Return whether the supports (m,) were pushed away, or do not lie on the table any more."""
        config, lay = self.config, transition.goals.objects[SUPPORT].position[:, 2]
        assert isinstance(config, StackConfig)
        off_table = abs(_height(transition.state, SUPPORT) - lay) > config.tolerance_m
        pushed: NDArray[np.bool_] = (self._moved_m(transition) > config.support_within_m) | off_table
        return pushed


def _height(state: TaskState, name: str) -> Array:
    """Return the heights of an object's centres (m,) [m]."""
    height: Array = state.objects[name].position[:, 2]
    return height


@kernel
def tops(position: Array, rotation: Array, item: Array, up_m: float, any_heading: bool) -> tuple[Array, Array]:
    """Return where objects on top of others belong (m, 3) [m], and how they are turned there (m, 3, 3).

    Args:
        position: (m, 3) centres of the lower ones [m].
        rotation: (m, 3, 3) how these are turned.
        item: (m, 3, 3) how the upper ones are turned.
        up_m: From the centre of a lower one to that of an upper one.
        any_heading: Whether any heading will do, and not only those that are square with the lower one.
    """
    place, turned = position.copy(), np.zeros(rotation.shape)
    for row in range(len(place)):
        place[row, 2] += up_m
        heading = heading_of(item[row])
        if not any_heading:
            own = heading_of(rotation[row])
            heading = own + pi / 2 * np.round((heading - own) / (pi / 2))
        turned[row, 0, 0] = turned[row, 1, 1] = np.cos(heading)
        turned[row, 1, 0] = np.sin(heading)
        turned[row, 0, 1] = -turned[row, 1, 0]
        turned[row, 2, 2] = 1.0
    return place, turned


TASKS.register("stack", Stack)
