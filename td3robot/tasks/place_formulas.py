"""The formulas of the place task, compiled: each is written for one row. To fetch the object, the grasp's count."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel
from td3robot.row_math import apart, yaw
from td3robot.state import Array
from td3robot.tasks.grasp_formulas import (
    FULL_TURN_RAD_S,
    NEAR_M,
    NEAR_TURN,
    SEEN_WITHIN_S,
    GraspState,
    Numbers,
    Period,
    funnel_share,
    heading_of,
    least_turn,
    measures_of,
    numbers_at,
    terms_of,
    turn_to,
    way_to,
)
from td3robot.tasks.interface import NOTHING_HELD
from td3robot.tasks.shaping import nearness, progress

# What is asked of the hand: to fetch the object, to carry it to its goal, and to leave it there.
FETCH, CARRY, LEAVE = 0, 1, 2
# An object at rest is upright to within this [rad], and slower than this [m/s].
UPRIGHT, REST_M_S = 0.175, 0.02
# As a camera sees it, an object lies at its goal within this many times the tolerances: it is some millimetres off.
SLACK = 2.0
# The fingers open within this share of the tolerances, and within this height of where the object lay [m].
RELEASE, RELEASE_HEIGHT_M = 0.5, 0.004
# Fingers are open once this much of what the object kept between them is left.
OPENED = 0.3
# Scale on which the reward ``near`` rises far from the goal [m]; next to it, the tolerances are its scales.
FAR_M = 0.1
# Scale on which ``placed`` rises as the hand leaves [m].
LEFT_M = 0.04


class PlaceNumbers(NamedTuple):
    """The task's own numbers, beside those of the grasp.

    Attributes:
        within_m, within_rad: Tolerances of the goal.
        carry_m: How far above where it lies the object is carried.
        clear_m: How far above the object's centre the tool is clear of it.
        leave_m: How far above it the tool has to go.
        release_m: How far above its goal, or below it, the fingers let go of it.
        is_cube: Whether any of the object's axes may be the upright one.
    """

    within_m: float
    within_rad: float
    carry_m: float
    clear_m: float
    leave_m: float
    release_m: float
    is_cube: bool


class PlaceTerms(NamedTuple):
    """A row's reward terms before their weights, of the same names as these; :class:`Place` describes them."""

    approach: float
    alignment: float
    precision: float
    close: float
    grasp: float
    push: float
    press: float
    carry: float
    near: float
    release: float
    leave: float
    placed: float
    smoothness: float
    guard: float


@formula
def turn_of_object(n: Numbers, item: Array, goal: Array) -> float:
    """Compute the smallest turn about the vertical from an object (3, 3) to its goal (3, 3) [rad]."""
    return least_turn(n, yaw(goal) - heading_of(item))


@formula
def is_upright(p: PlaceNumbers, item: Array) -> bool:
    """Whether an object (3, 3) stands upright, a cube on any side."""
    up = item[2, 2]
    if p.is_cube:
        up = max(abs(item[2, 0]), abs(item[2, 1]), abs(up))
    return bool(up >= np.cos(UPRIGHT))


@formula
def lies_at_goal(
    n: Numbers, p: PlaceNumbers, item: Array, turned: Array, goal: Array, rotation: Array, slack: float
) -> bool:
    """Whether an object at (3,), turned by (3, 3), lies at its goal, within so many times the tolerances."""
    within = slack * p.within_m
    return bool(
        apart(item[:2], goal[:2]) <= within
        and abs(item[2] - goal[2]) <= within
        and abs(turn_of_object(n, turned, rotation)) <= slack * p.within_rad
        and is_upright(p, turned)
    )


@formula
def stage_of(
    n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, rotation: Array, row: int, slack: float
) -> int:
    """Return what is to be done in a row, with the object's goal at (m, 3), turned by (m, 3, 3)."""
    if state.held[row] != NOTHING_HELD:
        return CARRY
    if lies_at_goal(n, p, state.item[row], state.item_rotation[row], goal[row], rotation[row], slack):
        return LEAVE
    return FETCH


@formula
def carried(n: Numbers, state: GraspState, row: int) -> tuple[float, float, float]:
    """Return where the commanded tool carries a held object [m]: sideways as commanded, in height as measured.

    Across the pads, it is in their middle, wherever a camera sees it.
    """
    item, tool, axis = state.item[row], state.tcp_position[row], state.tcp_rotation[row, :, 0]
    off = 0.0
    for k in range(3):
        off += axis[k] * (item[k] - tool[k])
    x = item[0] - off * axis[0] + state.commanded_position[row, 0] - tool[0]
    y = item[1] - off * axis[1] + state.commanded_position[row, 1] - tool[1]
    return x, y, item[2] - off * axis[2]


@formula
def way_to_goal(n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, row: int) -> tuple[float, float, float]:
    """Return the way [m] of a carried object to the funnel over its goal (m, 3), and down that at the goal."""
    x, y, z = carried(n, state, row)
    x, y = goal[row, 0] - x, goal[row, 1] - y
    return x, y, goal[row, 2] + p.carry_m * funnel_share(np.hypot(x, y)) - z


@formula
def far_from_goal(n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, row: int) -> float:
    """Compute the distance of a carried object from its goal along the funnel [m]."""
    x, y, z = way_to_goal(n, p, state, goal, row)
    return float(np.hypot(x, y) + abs(z))


@formula
def way_to_leave(n: Numbers, p: PlaceNumbers, state: GraspState, row: int) -> tuple[float, float, float]:
    """Return the way of a commanded tool to where it leaves the object [m]: up, once its fingers are open."""
    item, commanded = state.item[row], state.commanded_position[row]
    up = p.leave_m if is_open(n, state, row) else n.raise_m
    return item[0] - commanded[0], item[1] - commanded[1], item[2] + up - commanded[2]


@formula
def is_open(n: Numbers, state: GraspState, row: int) -> bool:
    """Whether the fingers let go of the object."""
    return bool(state.closed[row] <= OPENED * n.closed_on_object)


@formula
def left_of(p: PlaceNumbers, state: GraspState, row: int) -> float:
    """Return how far below the height at which it leaves the object a commanded tool is [m]."""
    return float(max(0.0, state.item[row, 2] + p.leave_m - state.commanded_position[row, 2]))


@formula
def has_left(n: Numbers, p: PlaceNumbers, state: GraspState, row: int) -> bool:
    """Whether the open hand is clear of the object."""
    return bool(is_open(n, state, row) and state.tcp_position[row, 2] - state.item[row, 2] >= p.clear_m)


@formula
def near_of(n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, rotation: Array, row: int) -> float:
    """Score how near to its goal an object is, in [0, 1]: where it is carried to, or where it lies."""
    if state.held[row] == NOTHING_HELD:
        far, turn = apart(state.item[row], goal[row]), turn_of_object(n, state.item_rotation[row], rotation[row])
    else:
        far = far_from_goal(n, p, state, goal, row)
        turn = turn_to(n, state.commanded_rotation[row], rotation[row])
    return float(0.5 * nearness(far, FAR_M) + 0.5 * nearness(far, p.within_m) * nearness(turn, p.within_rad))


@formula
def place_terms(n: Numbers, p: PlaceNumbers, period: Period, rotation: Array, row: int, height: float) -> PlaceTerms:
    """Compute a row's reward terms; ``period.hold`` are the objects' goals, turned by ``rotation`` (m, 3, 3).

    The stages have the slack that a camera needs: what a policy cannot see is no reason for a jump of its reward.
    """
    before, state, goal = period.before, period.state, period.hold
    pick = terms_of(n, period, measures_of(n, state, goal, row), height, row)
    was, now = stage_of(n, p, before, goal, rotation, row, SLACK), stage_of(n, p, state, goal, rotation, row, SLACK)
    alignment, carry, near, release, leave, placed = pick.alignment, 0.0, 0.0, 0.0, 0.0, 0.0
    fetches, carries, leaves = was == now == FETCH, was == now == CARRY, was == now == LEAVE
    if carries:
        full = n.funnel_step_m
        carry = progress(far_from_goal(n, p, before, goal, row), far_from_goal(n, p, state, goal, row), full)
        turned = abs(turn_to(n, before.commanded_rotation[row], rotation[row]))
        left = abs(turn_to(n, state.commanded_rotation[row], rotation[row]))
        alignment = progress(turned, left, FULL_TURN_RAD_S * n.period_s)
    if now != FETCH:
        near = near_of(n, p, state, goal, rotation, row)
    if leaves:
        release = progress(before.closed[row], state.closed[row], 1.0)
        leave = progress(left_of(p, before, row), left_of(p, state, row), n.step_m)
    if now == LEAVE:
        placed = 0.5 * (1.0 + nearness(left_of(p, state, row), LEFT_M) if is_open(n, state, row) else 1.0)
        if stage_of(n, p, state, goal, rotation, row, 1.0) != LEAVE:
            placed *= 0.5
    return PlaceTerms(
        approach=pick.approach if fetches else 0.0,
        alignment=alignment if fetches or carries else 0.0,
        precision=1.0 if now == LEAVE else pick.precision,
        close=pick.close if was != LEAVE and now != LEAVE else 0.0,
        grasp=1.0 if now == LEAVE else pick.grasp,
        push=pick.push,
        press=pick.press if now == FETCH else 0.0,
        carry=carry,
        near=near,
        release=release,
        leave=leave,
        placed=placed,
        smoothness=pick.smoothness,
        guard=pick.guard,
    )


@kernel
def place_rows(
    own: PlaceNumbers, weights: Array, before: GraspState, state: GraspState, goal: Array, rotation: Array,
    lay: Array, action: NDArray[np.float32], previous_action: NDArray[np.float32], intervened: NDArray[np.bool_],
) -> tuple[Array, NDArray[np.bool_], Array]:  # fmt: skip
    """Score a control period.

    Args:
        own: The task's own.
        weights: Of :class:`PlaceTerms`.
        before: See :class:`Period`, as all that follow but the goals.
        state: See there.
        goal: (m, 3) where the objects' centres must end up [m].
        rotation: (m, 3, 3) how they must be turned there.
        lay: See there.
        action: See there.
        previous_action: See there.
        intervened: See there.

    Returns:
        The weighted terms (terms, m), whether the goal is met (m,), and the objects' distances from it (m,) [m].
    """
    p, count = PlaceNumbers(*own), len(goal)
    period = Period(GraspState(*before), GraspState(*state), goal, lay, action, previous_action, intervened)
    terms, achieved, distance = np.empty((len(weights), count)), np.empty(count, np.bool_), np.empty(count)
    for row in range(count):
        n, now, item = numbers_at(period.state.numbers, row), period.state, period.state.item[row]
        height = item[2] - lay[row, 2]
        for index, share in enumerate(place_terms(n, p, period, rotation, row, height)):
            terms[index, row] = weights[index] * share
        rests = apart(item, period.before.item[row]) <= REST_M_S * n.period_s
        is_placed = stage_of(n, p, now, goal, rotation, row, 1.0) == LEAVE
        achieved[row] = is_placed and rests and has_left(n, p, now, row)
        distance[row] = apart(item, goal[row])
    return terms, achieved, distance


# The fields of an observation that take a formula.
OBSERVED = (
    "commanded_yaw",
    "target_from_commanded",
    "target_near",
    "turn_left",
    "turn_near",
    "object_height",
    "goal_from_object",
    "may_open",
    "placed",
    "object_age",
)


@kernel
def observe_rows(own: PlaceNumbers, parts: GraspState, goal: Array, rotation: Array, lay: Array) -> tuple[Array, ...]:
    """Compute the fields in ``OBSERVED``; ``goal``, ``rotation`` and ``lay`` as in :func:`place_rows`."""
    p, state, count = PlaceNumbers(*own), GraspState(*parts), len(goal)
    heading, target, near, way = np.empty((count, 2)), np.empty((count, 3)), np.empty((count, 3)), np.empty((count, 3))
    turn, turn_near, height, may, placed, age_s = np.empty((6, count))
    for row in range(count):
        n = numbers_at(state.numbers, row)
        stage = stage_of(n, p, state, goal, rotation, row, SLACK)
        angle = yaw(state.commanded_rotation[row])
        heading[row, 0], heading[row, 1] = np.cos(angle), np.sin(angle)
        target[row, 0], target[row, 1], target[row, 2] = target_of(n, p, state, goal, stage, row)
        for axis in range(3):
            near[row, axis] = np.tanh(target[row, axis] / NEAR_M)
            way[row, axis] = goal[row, axis] - state.item[row, axis]
        turn[row] = turn_of(n, state, rotation, stage, row)
        turn_near[row] = np.tanh(turn[row] / NEAR_TURN)
        height[row] = np.tanh((state.item[row, 2] - lay[row, 2]) / NEAR_M)
        may[row] = may_open(n, p, state, goal, rotation, row)
        placed[row] = stage == LEAVE
        age_s[row] = min(state.age_s[row], SEEN_WITHIN_S)
    return heading, target, near, turn, turn_near, height, way, may, placed, age_s


@formula
def target_of(
    n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, stage: int, row: int
) -> tuple[float, float, float]:
    """Compute the way of a commanded tool to the grasp point, to the funnel over the goal, or up from the object [m].

    A held object moves with the tool, so what is left for the commanded tool does not depend on delays.
    """
    if stage == FETCH:
        return way_to(n, state.item[row], state.commanded_position[row])
    if stage == LEAVE:
        return way_to_leave(n, p, state, row)
    x, y, z = way_to_goal(n, p, state, goal, row)
    return x, y, z - state.commanded_position[row, 2] + state.tcp_position[row, 2]


@formula
def turn_of(n: Numbers, state: GraspState, rotation: Array, stage: int, row: int) -> float:
    """Compute the turn left to a commanded tool [rad]: to the object's heading, then to the goal's."""
    if stage == LEAVE:
        return 0.0
    wanted = rotation[row] if stage == CARRY else state.item_rotation[row]
    return turn_to(n, state.commanded_rotation[row], wanted)


@formula
def may_open(n: Numbers, p: PlaceNumbers, state: GraspState, goal: Array, rotation: Array, row: int) -> bool:
    """Whether fingers may let go of what they hold: it is at its goal, as far as they and the camera know."""
    if state.held[row] == NOTHING_HELD:
        return True
    x, y, z = carried(n, state, row)
    turn = turn_to(n, state.tcp_rotation[row], rotation[row])
    return bool(
        np.hypot(x - goal[row, 0], y - goal[row, 1]) <= RELEASE * p.within_m
        and abs(z - goal[row, 2]) <= p.release_m
        and abs(turn) <= RELEASE * p.within_rad
    )


@kernel
def placed_rows(own: PlaceNumbers, parts: GraspState, goal: Array, rotation: Array, slack: float) -> NDArray[np.bool_]:
    """Return whether objects (m,) lie at their goals, and are not held, within so many times the tolerances."""
    p, state = PlaceNumbers(*own), GraspState(*parts)
    found = np.empty(len(goal), np.bool_)
    for row in range(len(found)):
        n = numbers_at(state.numbers, row)
        found[row] = stage_of(n, p, state, goal, rotation, row, slack) == LEAVE
    return found


@kernel
def limit_ranges(own: PlaceNumbers, parts: GraspState, goal: Array, rotation: Array, least: Array, most: Array) -> None:
    """Let grippers' ranges (m,) begin at open where objects are to be let go, and end there where they lie."""
    p, state = PlaceNumbers(*own), GraspState(*parts)
    for row in range(len(least)):
        n = numbers_at(state.numbers, row)
        if stage_of(n, p, state, goal, rotation, row, SLACK) == LEAVE:
            least[row] = most[row] = 0.0
        elif state.held[row] != NOTHING_HELD and may_open(n, p, state, goal, rotation, row):
            least[row] = 0.0
