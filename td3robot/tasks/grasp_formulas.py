"""The formulas of the grasp task, compiled: each is written for one row, and loops over the rows of a batch call it."""

from math import pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel, plain
from td3robot.row_math import apart, dot, length, turns_down, yaw
from td3robot.state import Array
from td3robot.tasks.interface import AT_REST, NOTHING_HELD, TaskState
from td3robot.tasks.shaping import change_of, nearness, progress, ramp

OBJECT = "object"

# Scales on which the observation resolves the last stretch to the object [m], and the last part of a turn [rad].
NEAR_M, NEAR_TURN = 0.03, 0.1
# The approach follows a funnel, so that open fingers come down around the object. This is its height, or more if the
# fingers would not clear the object, and the radius at which it reaches that height [m].
FUNNEL_HEIGHT, FUNNEL_RADIUS = 0.08, 0.05
# Scale on which the holding reward falls with the distance from the hold point [m].
AT_POINT = 0.02
# Sideways motion is penalized less than this far above where the object lay [m].
LOW = 0.01
# Open fingers are in the object's way if the tool is beside it by so much that they would not pass it, and they reach
# deeper than this far above its top [m]; ``press`` grows to its full size over PRESS_SCALE in both directions. A finger
# is this thick, and this far to each side of the jaw's middle [m]: the largest of the grippers here.
ABOVE_TOP, PRESS_SCALE, FINGER_THICK, FINGER_HALF_WIDTH = 0.005, 0.01, 0.02, 0.012
# Share of the room between an object in the middle of the open jaw and a finger by which a tool may be beside it, and
# come down all the same.
OVER_SHARE = 0.5
# Scale that separates holding still from moving slowly [m/s].
STILL = 0.02
# A turning tool counts as moving like a point this far from its axis [m]: nothing else would keep it from turning. The
# reward ``held`` uses the larger radius: with the smaller, some policies went on turning.
TURN_RADIUS, HELD_TURN_RADIUS = 0.05, 0.15
# Share of the holding reward that responds to speed over the whole range, not only near rest.
SLOW_SHARE = 0.3
# A grip that is misaligned with the pads by this angle is worth a third [rad].
TURNED = 0.3
# For the way in joints, a tool tilted by 1 rad is that far beside the object [m]: at 0.05 rad it may come down, where
# the lower finger of a wide open gripper is 3 mm nearer to the table.
TILT_RADIUS = 0.2
# Scale of the distance to the grasp point at which closing makes sense [m].
AT_OBJECT = 0.02
# Scale on which keeping the commanded tool point at the grasp point is rewarded while the fingers close [m].
PRECISE = 0.01
# An object lifted within this distance of the tool point is between the pads, not lying on the gripper [m].
IN_HAND = 0.04
# The drivers count as stopped short of closed when the command is ahead of them by this closed fraction.
SHORT_OF_COMMAND = 0.08
# Fingers that rest short of their command rest against something, whatever its size, unless they hardly moved yet.
LEAST_CLOSED = 0.1
# Fingers that were told to close, hold nothing and have not moved for this long have failed [s]: some grippers report
# their position ten times a second, and answers may be late.
FAILED_S = 0.5
# Open fingers close only around an object that was seen this lately, and the observed age saturates here [s].
SEEN_WITHIN_S = 4.0
# Below this tool speed, and not moving in the hand, the object counts as held at rest [m/s].
REST_SPEED_M_S = 0.02
# Turn rate of the tool that earns the whole of ``alignment``: at least what two joints at the guard's limit reach
# (2 * 1.57 rad/s). If only one side were clipped, turning away fast and back slowly would pay.
FULL_TURN_RAD_S = 3.2


class Numbers(NamedTuple):
    """The task's numbers in a row, for compiled code: those of its configuration, and of what is told of the object.

    Attributes:
        period_s: One control period.
        step_m: How far the tool moves in it at most.
        symmetry: How many turns about the vertical leave the object as it is; 0 for any.
        across: From the object's x axis to the tool's, gripped [rad].
        raise_m: How far above the object's centre the grasp point is.
        over_m: The funnel's height.
        funnel_step_m: How much nearer along the funnel the tool comes in a period at most.
        lift_m: How far above where the object lay its hold point is.
        lifted_m: How far above that it counts as lifted.
        within_m: How near to the grasp point the gripper may begin to close.
        closed_on_object, empty_beyond: Closed fractions at which the fingers should meet the object, and beyond which
            they hold nothing.
        half_stroke, fingertips: Of the jaw, for ``press`` [m].
        half_width, half_length, half_height: Of the object, across the pads, along them and upwards [m].
    """

    period_s: float
    step_m: float
    symmetry: float
    across: float
    raise_m: float
    over_m: float
    funnel_step_m: float
    lift_m: float
    lifted_m: float
    within_m: float
    closed_on_object: float
    empty_beyond: float
    half_stroke: float
    fingertips: float
    half_width: float
    half_length: float
    half_height: float


class GraspState(NamedTuple):
    """What the formulas use of m rows of a :class:`TaskState`, for compiled code: the object has a place of its own."""

    item: Array
    item_rotation: Array
    age_s: Array
    tcp_position: Array
    tcp_rotation: Array
    tcp_velocity: Array
    commanded_position: Array
    commanded_rotation: Array
    commanded_velocity: Array
    commanded_turn_rate: Array
    commanded_gripper: Array
    closed: Array
    stalled_s: Array
    held: NDArray[np.intp]
    numbers: Array

    @classmethod
    def of(cls, state: TaskState) -> "GraspState":
        """Return these parts of a state, to call compiled code with."""
        item = state.objects[OBJECT]
        parts = cls(
            item.position, item.rotation, item.age_s, state.tcp_position, state.tcp_rotation, state.tcp_velocity,
            state.commanded_position, state.commanded_rotation, state.commanded_velocity, state.commanded_turn_rate,
            state.commanded_gripper, state.closed, state.stalled_s, state.held, state.numbers,
        )  # fmt: skip
        return plain(parts)


class Measures(NamedTuple):
    """The quantities that score a state.

    Attributes:
        distance: Distance from the measured tool point to the grasp point [m].
        turn: Smallest turn about the vertical that lines the commanded tool up with the object [rad].
        funnel: Distance from the tool point to the grasp point along the funnel [m].
        around: How surely closing fingers would have the object between them, in [0, 1].
        share: How far the fingers are closed, as a share of their travel to the object.
        open: How much of closing around the object is left to do, in [0, 1].
        remaining: Distance of the object from its hold point [m].
    """

    distance: float
    turn: float
    funnel: float
    around: float
    share: float
    open: float
    remaining: float


class Period(NamedTuple):
    """A control period of m rows, for compiled code; see :class:`Transition`.

    Attributes:
        before, state: The states before and after it.
        hold: (m, 3) the hold points [m].
        lay: (m, 3) where the objects lay [m].
        action, previous_action, intervened: As there.
    """

    before: GraspState
    state: GraspState
    hold: Array
    lay: Array
    action: NDArray[np.float32]
    previous_action: NDArray[np.float32]
    intervened: NDArray[np.bool_]


class Terms(NamedTuple):
    """A row's reward terms before their weights, of the same names as these; :class:`Grasp` describes them."""

    approach: float
    alignment: float
    precision: float
    close: float
    grasp: float
    push: float
    press: float
    lift: float
    rise: float
    held: float
    smoothness: float
    guard: float


@formula
def numbers_at(numbers: Array, row: int) -> Numbers:
    """Return a row of numbers (m, numbers) by name."""
    at = numbers[row]
    return Numbers(
        at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9], at[10], at[11], at[12], at[13], at[14],
        at[15], at[16],
    )  # fmt: skip


@formula
def heading_of(item: Array) -> float:
    """Compute the direction of an object's x axis (3, 3) about the vertical, or of a rolled cube's y axis [rad]."""
    if np.hypot(item[0, 0], item[1, 0]) >= 0.5:
        return yaw(item)
    return float(np.arctan2(item[1, 1], item[0, 1]))


@formula
def least_turn(n: Numbers, turn: float) -> float:
    """Return the smallest turn about the vertical that looks like one by so much to an object [rad]."""
    if n.symmetry == 0:
        return 0.0
    step = 2 * pi / n.symmetry
    return float((turn + step / 2) % step - step / 2)


@formula
def turn_to(n: Numbers, tool: Array, item: Array) -> float:
    """Compute the smallest turn about the vertical that lines a tool (3, 3) up with an object (3, 3) [rad]."""
    return least_turn(n, heading_of(item) + n.across - yaw(tool))


@formula
def way_to(n: Numbers, item: Array, tool: Array) -> tuple[float, float, float]:
    """Compute the way from a tool point (3,) to the grasp point of an object at (3,) [m]."""
    return item[0] - tool[0], item[1] - tool[1], item[2] + n.raise_m - tool[2]


@formula
def distance_to(n: Numbers, item: Array, tool: Array) -> float:
    """Compute the distance from a tool point (3,) to the grasp point of an object at (3,) [m]."""
    x, y, z = way_to(n, item, tool)
    return float(np.sqrt(x * x + y * y + z * z))


@formula
def speed_of(velocity: Array, turn_rate: float, radius: float) -> float:
    """Compute a tool's speed [m/s] from its velocity (3,) [m/s] and its turn rate about the vertical [rad/s]."""
    return length(velocity) + radius * abs(turn_rate)


@formula
def funnel_share(beside: float) -> float:
    """Compute the height of the funnel, as a share of its largest, beside the object by so much [m]."""
    return ramp(beside - 0.01, FUNNEL_RADIUS)


@formula
def funnel_of(n: Numbers, state: GraspState, row: int) -> float:
    """Compute the distance from a tool point to the grasp point along the funnel [m].

    Sideways, the commanded point counts, so that an action is rewarded at once; in height, the measured one, which
    moves with an object that it carries.
    """
    x, y, _ = way_to(n, state.item[row], state.commanded_position[row])
    beside = np.sqrt(x * x + y * y)
    height = state.tcp_position[row, 2] - (state.item[row, 2] + n.raise_m) - n.over_m * funnel_share(beside)
    return float(beside + abs(height))


@formula
def measures_of(n: Numbers, state: GraspState, hold: Array, row: int) -> Measures:
    """Measure a row of a state; ``hold`` (m, 3) are the hold points [m]."""
    item, item_rotation, closed = state.item[row], state.item_rotation[row], state.closed[row]
    distance = distance_to(n, item, state.tcp_position[row])
    around = nearness(distance, AT_OBJECT) * nearness(turn_to(n, state.tcp_rotation[row], item_rotation), TURNED)
    share = 0.0 if closed > n.empty_beyond else ramp(closed, n.closed_on_object)
    return Measures(
        distance,
        turn_to(n, state.commanded_rotation[row], item_rotation),
        funnel_of(n, state, row),
        around,
        share,
        1.0 - around * share,
        apart(hold[row], item),
    )


@formula
def precision_of(n: Numbers, state: GraspState, turn: float, row: int) -> float:
    """Score how well a commanded tool, turned from its object by ``turn`` [rad], keeps to the grasp point.

    It is 0 until the gripper is commanded to close: otherwise waiting would pay.
    """
    if state.commanded_gripper[row] < 1.0:
        return 0.0
    return nearness(distance_to(n, state.item[row], state.commanded_position[row]), PRECISE) * nearness(turn, TURNED)


@formula
def stillness_of(n: Numbers, speed: float) -> float:
    """Score a speed [m/s] in [0, 1]: 1 at rest, and higher the slower, from full speed down."""
    slow = max(0.0, 1.0 - speed * n.period_s / n.step_m)
    return float(SLOW_SHARE * slow + (1.0 - SLOW_SHARE) * np.exp(-speed / STILL))


@formula
def pressing_of(n: Numbers, state: GraspState, row: int) -> float:
    """Score how far open fingers are in the way of the object, which counts as square, in [0, 1]."""
    if state.commanded_gripper[row] >= 1.0 or state.held[row] != NOTHING_HELD:
        return 0.0
    item, tool, rotation = state.item[row], state.tcp_position[row], state.tcp_rotation[row]
    across = along = 0.0
    for axis in range(3):
        across += rotation[axis, 0] * (item[axis] - tool[axis])
        along += rotation[axis, 1] * (item[axis] - tool[axis])
    across, along = abs(across), abs(along)
    opening = n.half_stroke * (1.0 - ramp(state.closed[row], 1.0))
    if across > opening + FINGER_THICK + n.half_width or along > n.half_width + FINGER_HALF_WIDTH:
        return 0.0
    deep = item[2] + n.half_height + ABOVE_TOP - (tool[2] - n.fingertips)
    return float(ramp(across + n.half_width - opening, PRESS_SCALE) * ramp(deep, PRESS_SCALE))


@formula
def is_at_rest(n: Numbers, before: GraspState, state: GraspState, row: int) -> bool:
    """Whether a measured tool neither moves nor turns. A held object moves with it; camera noise is no motion."""
    tool, earlier = state.tcp_rotation[row], before.tcp_rotation[row]
    turned = np.arctan2(dot(tool[1], earlier[0]), dot(tool[0], earlier[0]))
    return bool(speed_of(state.tcp_velocity[row], turned / n.period_s, TURN_RADIUS) <= REST_SPEED_M_S)


@formula
def is_up(n: Numbers, now: Measures, height: float) -> bool:
    """Whether an object is lifted far enough, in the hand, at a height above where it lay [m]."""
    return now.distance <= IN_HAND and height >= n.lifted_m


@formula
def terms_of(n: Numbers, period: Period, now: Measures, height: float, row: int) -> Terms:
    """Compute a row's reward terms, from the measures at the period's end and the object's height [m] then."""
    before, state = period.before, period.state
    earlier = measures_of(n, before, period.hold, row)
    is_held, is_low = state.held[row] != NOTHING_HELD, height < LOW
    pushed = apart(state.item[row, :2], before.item[row, :2]) / n.step_m
    speed = speed_of(state.commanded_velocity[row], state.commanded_turn_rate[row], HELD_TURN_RADIUS)
    return Terms(
        approach=progress(earlier.funnel, now.funnel, n.funnel_step_m),
        alignment=progress(abs(earlier.turn), abs(now.turn), FULL_TURN_RAD_S * n.period_s),
        precision=1.0 if is_held else precision_of(n, state, now.turn, row),
        close=progress(earlier.open, now.open, 1.0),
        grasp=now.around * 0.5 * (now.share + (1.0 if is_held else 0.0)),
        push=-min(pushed, 1.0) if is_low else 0.0,
        press=-pressing_of(n, state, row) if is_low else 0.0,
        lift=nearness(now.distance, AT_OBJECT) * max(0.0, 1.0 - now.remaining / n.lift_m),
        rise=progress(earlier.remaining, now.remaining, n.lift_m),
        held=nearness(now.remaining, AT_POINT) * stillness_of(n, speed) if is_up(n, now, height) else 0.0,
        smoothness=-change_of(period.action[row], period.previous_action[row]),
        guard=-1.0 if period.intervened[row] else 0.0,
    )


@kernel
def score_rows(
    weights: Array, before: GraspState, state: GraspState, hold: Array, lay: Array,
    action: NDArray[np.float32], previous_action: NDArray[np.float32], intervened: NDArray[np.bool_],
) -> tuple[Array, NDArray[np.bool_], Array]:  # fmt: skip
    """Score a control period.

    Args:
        weights: Of :class:`Terms`.
        before: See :class:`Period`, as all that follow.
        state: See there.
        hold: See there.
        lay: See there.
        action: See there.
        previous_action: See there.
        intervened: See there.

    Returns:
        The weighted terms (terms, m), whether the goal is met (m,), and the height that is left (m,) [m].
    """
    count = len(hold)
    period = Period(GraspState(*before), GraspState(*state), hold, lay, action, previous_action, intervened)
    terms, achieved, left = np.empty((len(weights), count)), np.empty(count, np.bool_), np.empty(count)
    for row in range(count):
        n = numbers_at(period.state.numbers, row)
        now = measures_of(n, period.state, period.hold, row)
        height = period.state.item[row, 2] - period.lay[row, 2]
        for index, share in enumerate(terms_of(n, period, now, height, row)):
            terms[index, row] = weights[index] * share
        is_held = period.state.held[row] != NOTHING_HELD
        achieved[row] = is_up(n, now, height) and is_held and is_at_rest(n, period.before, period.state, row)
        left[row] = max(0.0, n.lifted_m - height)
    return terms, achieved, left


@formula
def target_of(n: Numbers, state: GraspState, hold: Array, row: int) -> tuple[float, float, float]:
    """Compute the way from a commanded tool to its grasp point or, once the object is held, to its hold point [m].

    A held object moves with the tool, so what is left for the commanded tool does not depend on delays.
    """
    item, commanded, tool = state.item[row], state.commanded_position[row], state.tcp_position[row]
    if state.held[row] == NOTHING_HELD:
        return way_to(n, item, commanded)
    return (
        hold[row, 0] + tool[0] - item[0] - commanded[0],
        hold[row, 1] + tool[1] - item[1] - commanded[1],
        hold[row, 2] + tool[2] - item[2] - commanded[2],
    )


@formula
def turn_left(n: Numbers, state: GraspState, row: int) -> float:
    """Compute the turn that lines a commanded tool up with its object [rad]; 0 where the object is held.

    An object in the hand leaves nothing to line up with, and chasing it would never end.
    """
    if state.held[row] != NOTHING_HELD:
        return 0.0
    return turn_to(n, state.commanded_rotation[row], state.item_rotation[row])


# How much way a turn counts as, in noticing that nothing goes on [m/rad].
TURN_M = 0.05

# The fields of an observation that take a formula.
OBSERVED = (
    "commanded_yaw",
    "target_from_commanded",
    "target_near",
    "object_turn",
    "object_turn_near",
    "lift_left",
    "object_age",
)


@kernel
def observe_rows(parts: GraspState, hold: Array) -> tuple[Array, ...]:
    """Compute the fields in ``OBSERVED``; ``hold`` (m, 3) are the hold points [m]."""
    state, count = GraspState(*parts), len(hold)
    heading, target, target_near = np.empty((count, 2)), np.empty((count, 3)), np.empty((count, 3))
    turn, turn_near, left, age_s = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    for row in range(count):
        n = numbers_at(state.numbers, row)
        angle = yaw(state.commanded_rotation[row])
        heading[row, 0], heading[row, 1] = np.cos(angle), np.sin(angle)
        target[row, 0], target[row, 1], target[row, 2] = target_of(n, state, hold, row)
        for axis in range(3):
            target_near[row, axis] = np.tanh(target[row, axis] / NEAR_M)
        turn[row] = turn_left(n, state, row)
        turn_near[row] = np.tanh(turn[row] / NEAR_TURN)
        left[row] = np.tanh((hold[row, 2] - state.item[row, 2]) / n.lift_m)
        age_s[row] = min(state.age_s[row], SEEN_WITHIN_S)
    return heading, target, target_near, turn, turn_near, left, age_s


@kernel
def joint_goals_of(parts: GraspState, hold: Array) -> Array:
    """Compute the ways (m, 6) [m, rad] along which joints lead tools: to where they should be, turned and upright.

    Beside the object, that is above the grasp point at the funnel's height; once it is held, where it is to hang.
    A tilted tool has to stay higher, too, or the guard would stop it with one finger near the table.
    """
    state = GraspState(*parts)
    upright, found = turns_down(state.commanded_rotation), np.empty((len(hold), 6))
    for row in range(len(hold)):
        n = numbers_at(state.numbers, row)
        x, y, z = target_of(n, state, hold, row)
        if state.held[row] == NOTHING_HELD:
            z += n.over_m * funnel_share(np.hypot(x, y) + TILT_RADIUS * length(upright[row]))
        found[row, 0], found[row, 1], found[row, 2] = x, y, z
        found[row, 3], found[row, 4], found[row, 5] = upright[row, 0], upright[row, 1], turn_left(n, state, row)
    return found


@formula
def may_close(n: Numbers, state: GraspState, row: int) -> bool:
    """Whether both the commanded and the measured tool are around an object that was seen lately."""
    item, turn = state.item[row], state.item_rotation[row]
    commanded, tool = state.commanded_position[row], state.tcp_position[row]
    return (
        state.age_s[row] <= SEEN_WITHIN_S
        and distance_to(n, item, commanded) <= n.within_m
        and distance_to(n, item, tool) <= n.within_m
        and abs(turn_to(n, state.commanded_rotation[row], turn)) <= TURNED
        and abs(turn_to(n, state.tcp_rotation[row], turn)) <= TURNED
    )


@formula
def is_over(n: Numbers, state: GraspState, row: int) -> bool:
    """Whether a commanded tool could come down with the object between its open fingers, with room on each side."""
    item, commanded, rotation = state.item[row], state.commanded_position[row], state.commanded_rotation[row]
    across = along = 0.0
    for axis in range(3):
        across += rotation[axis, 0] * (item[axis] - commanded[axis])
        along += rotation[axis, 1] * (item[axis] - commanded[axis])
    room = OVER_SHARE * (n.half_stroke - n.half_width)
    turn = turn_to(n, rotation, state.item_rotation[row])
    return bool(abs(across) <= room and abs(along) <= FINGER_HALF_WIDTH and abs(turn) <= TURNED)


@kernel
def lowest_rows(parts: GraspState) -> Array:
    """Return how low tools (m,) may be wanted [m]; see :meth:`Grasp.lowest`."""
    state = GraspState(*parts)
    lowest = np.full(len(state.held), -np.inf)
    for row in range(len(lowest)):
        n = numbers_at(state.numbers, row)
        if state.held[row] == NOTHING_HELD and state.commanded_gripper[row] < 1.0 and not is_over(n, state, row):
            lowest[row] = state.item[row, 2] + n.half_height + ABOVE_TOP + n.fingertips
    return lowest


@formula
def has_failed(n: Numbers, state: GraspState, row: int) -> bool:
    """Whether fingers closed further than the object allows, or stopped too far apart."""
    closed = state.closed[row]
    has_stopped = state.stalled_s[row] >= FAILED_S and state.held[row] == NOTHING_HELD
    is_short = state.commanded_gripper[row] >= 1.0 and has_stopped and closed > SHORT_OF_COMMAND
    return bool(closed > n.empty_beyond or is_short)


@kernel
def ways_left(parts: GraspState) -> Array:
    """Compute the ways left (m,) to the grip [m]; see :meth:`Grasp.way_left`."""
    state = GraspState(*parts)
    left = np.zeros(len(state.held))
    for row in range(len(left)):
        n = numbers_at(state.numbers, row)
        if state.held[row] == NOTHING_HELD:
            turn = abs(turn_to(n, state.tcp_rotation[row], state.item_rotation[row]))
            left[row] = distance_to(n, state.item[row], state.tcp_position[row]) + TURN_M * turn
            left[row] += n.half_stroke * (1.0 - ramp(state.closed[row], n.closed_on_object))
            if has_failed(n, state, row):
                left[row] = np.inf
    return left


@kernel
def gripper_ranges(parts: GraspState) -> tuple[Array, Array]:
    """Return the bounds (m,) of the grippers' next commands; see :meth:`Grasp.gripper_range`."""
    state = GraspState(*parts)
    least, most = np.zeros(len(state.held)), np.zeros(len(state.held))
    for row in range(len(state.held)):
        n = numbers_at(state.numbers, row)
        commanded, closed = state.commanded_gripper[row], state.closed[row]
        closes = commanded >= 1.0
        if closed - commanded > SHORT_OF_COMMAND:  # it opens
            least[row] = most[row] = commanded
        elif not has_failed(n, state, row):
            least[row] = 1.0 if closes else 0.0
            most[row] = 1.0 if closes or may_close(n, state, row) else commanded
    return least, most


@kernel
def held_rows(numbers: Array, closed: Array, earlier: Array, told: Array) -> NDArray[np.intp]:
    """Return what is held (m,); see :meth:`Grasp.held`.

    Args:
        numbers: (m, numbers) see :class:`Numbers`.
        closed: (m,) closed fractions.
        earlier: (m,) those of ``REST_S`` ago.
        told: (m,) commanded closed fractions.
    """
    found = np.full(len(closed), NOTHING_HELD)
    for row in range(len(closed)):
        rests, is_short = abs(closed[row] - earlier[row]) < AT_REST, told[row] - closed[row] > SHORT_OF_COMMAND
        if rests and is_short and LEAST_CLOSED < closed[row] <= numbers_at(numbers, row).empty_beyond:
            found[row] = 0
    return found
