"""Checks whether a controller's report can be true. Plain Python: this runs in the worker's loop, on every state.

A stop reacts to measurements. Everything downstream would believe one that freezes, jumps, drifts or comes from another
time, so the worker stops the arm, as well as it still can, and says which check failed.
"""

from collections import deque
from collections.abc import Sequence
from math import acos, cos, exp, hypot, isfinite, sin, sqrt

from td3robot.robots.driver.link import StoppedError, StreamSettings
from td3robot.robots.driver.shared_memory import WorkerState

# How far beyond its limits a joint may be reported [rad], and how much faster than its speed limit [1, rad/s].
POSITION_MARGIN, SPEED_FACTOR, SPEED_MARGIN = 0.1, 1.5, 0.3
# A joint may move this much further between two states than full speed allows [rad].
JUMP_MARGIN = 0.02
# Angles and integrated velocities may disagree by this [rad]; disagreement decays with the time constant [s].
DRIFT_LIMIT, DRIFT_MEMORY_S = 0.05, 2.0
# The controller's clock is compared with ours over a window [s]: how fast it may run, and how late or early it may be
# once [s]. A busy stand-in's clock waits; there is never a reason for a fast one.
WINDOW_S, SLOWEST, FASTEST, LATE_S, EARLY_S = 2.0, 0.4, 1.1, 0.5, 0.15
# While targets are streamed, a joint is where they were within this time [s], give or take this [rad]: lag and
# overshoot. One target is kept per this much time [s].
SERVO_S, SERVO_RAD, TARGETS_S = 0.5, 0.06, 0.01
# Twice what the check of a robot at rest allows (5 mm and 0.03 rad, in deploy/check.py), which covers a data sheet's
# kinematics that differ from the arm's own by a few millimetres [m, rad].
TOOL_M, TOOL_RAD = 0.01, 0.06

Pose = Sequence[float]


class Plausibility:
    """Check each new state against the previous one, the clock, and the streamed targets.

    Args:
        limits: The settings that contain the joint limits.

    Attributes:
        tool: Compares the tool's pose with the joint angles, once the arm's kinematics are known.
    """

    def __init__(self, limits: StreamSettings) -> None:
        self._limits = limits
        self.tool: ToolCheck | None = None
        self._before: WorkerState | None = None
        self._drift = [0.0] * len(limits.joint_names)
        self._clock: deque[tuple[float, float]] = deque()
        self._targets: deque[tuple[float, tuple[float, ...]]] = deque()

    def check(self, state: WorkerState, streaming: bool) -> None:
        """Check a state; one that was checked before passes.

        Args:
            state: The latest state, with the last streamed target.
            streaming: Whether the arm is following targets.

        Raises:
            StoppedError: The state cannot be true; says why.
        """
        self._remember_target(state, streaming)
        before = self._before
        if before is not None and state.controller_time == before.controller_time:
            return
        self._require_possible(state)
        if before is not None:
            self._require_clock(before, state)
            self._require_continuous(before, state)
        self.require_tool(state)
        if streaming:
            self._require_following(state)
        self._before = state

    def require_tool(self, state: WorkerState) -> None:
        """Check the tool's pose, if the controller reports one and the arm's kinematics are known.

        Raises:
            StoppedError: It does not match the joint angles.
        """
        if self.tool is not None and state.tool:
            self.tool.require(state.q, state.tool)

    def _require_possible(self, state: WorkerState) -> None:
        limits = self._limits
        for name, q, dq, lower, upper, fastest in zip(
            limits.joint_names, state.q, state.dq, limits.lower, limits.upper, limits.velocity, strict=True
        ):
            if not lower - POSITION_MARGIN <= q <= upper + POSITION_MARGIN:
                raise StoppedError(
                    f"the controller reports joint {name!r} at {q:.6g} rad, outside of its {lower:.3g} to {upper:.3g} "
                    "rad: the state cannot be true"
                )
            if not abs(dq) <= SPEED_FACTOR * fastest + SPEED_MARGIN:
                raise StoppedError(
                    f"the controller reports joint {name!r} at {dq:.6g} rad/s, and it can do {fastest:.3g}: the state "
                    "cannot be true"
                )

    def _require_clock(self, before: WorkerState, state: WorkerState) -> None:
        time = state.controller_time
        if not isfinite(time) or time < before.controller_time:
            raise StoppedError(
                f"the controller's clock went from {before.controller_time:.3f} to {time:.3f} s: its states are from "
                "another time"
            )
        clock = self._clock
        clock.append((state.stamp, time))
        while state.stamp - clock[0][0] > WINDOW_S:
            clock.popleft()
        ours, theirs = state.stamp - clock[0][0], time - clock[0][1]
        if not SLOWEST * ours - LATE_S <= theirs <= FASTEST * ours + EARLY_S:
            raise StoppedError(
                f"the controller's clock ran {theirs:.2f} s while {ours:.2f} s passed: states are from another time"
            )

    def _require_continuous(self, before: WorkerState, state: WorkerState) -> None:
        # If a clock waited, the motion may match either time.
        times = state.controller_time - before.controller_time, state.stamp - before.stamp
        passed = max(times)
        kept = exp(-passed / DRIFT_MEMORY_S)
        for joint, (name, fastest) in enumerate(zip(self._limits.joint_names, self._limits.velocity, strict=True)):
            step = state.q[joint] - before.q[joint]
            if abs(step) > SPEED_FACTOR * fastest * passed + JUMP_MARGIN:
                raise StoppedError(
                    f"the controller reports that joint {name!r} went {step:+.3f} rad in {1e3 * passed:.0f} ms, and it "
                    f"can do {fastest:.3g} rad/s: the state cannot be true"
                )
            speed = 0.5 * (state.dq[joint] + before.dq[joint])
            low, high = sorted(speed * time for time in times)
            self._drift[joint] = kept * self._drift[joint] + min(max(0.0, step - high), step - low)
            if abs(self._drift[joint]) > DRIFT_LIMIT:
                raise StoppedError(
                    f"angle and velocity of joint {name!r} disagree by {self._drift[joint]:+.3f} rad over the last "
                    "seconds: one of them is wrong"
                )

    def _remember_target(self, state: WorkerState, streaming: bool) -> None:
        if not streaming:
            self._targets.clear()
            return
        if not self._targets or state.beat - self._targets[-1][0] >= TARGETS_S:
            self._targets.append((state.beat, state.target))
        while state.beat - self._targets[0][0] > SERVO_S:
            self._targets.popleft()

    def _require_following(self, state: WorkerState) -> None:
        for joint, name in enumerate(self._limits.joint_names):
            sent = [target[joint] for _, target in self._targets]
            away = max(min(sent) - state.q[joint], state.q[joint] - max(sent))
            if away > SERVO_RAD:
                raise StoppedError(
                    f"joint {name!r} is {away:.3f} rad away from everything it was sent to in the last {SERVO_S:g} s: "
                    "it does not follow"
                )


class ToolCheck:
    """Compare a controller's reported tool pose with that of its reported joint angles; this takes about 30 us.

    A pose is twelve numbers: the three columns of its rotation, then the position [m].

    Args:
        links: n + 1 fixed poses (12,) of the arm's chain: from the base to the first joint, from each joint to the
            next, and from the last joint to the tool centre point.
    """

    def __init__(self, links: Sequence[Pose]) -> None:
        self._links = [tuple(link) for link in links]

    def pose(self, q: Sequence[float]) -> Pose:
        """Compute the tool's pose (12,) in the base frame at joint angles q (n,) [rad]."""
        pose: Pose = self._links[0]
        for angle, link in zip(q, self._links[1:], strict=True):
            pose = _times(_turned(pose, angle), link)
        return pose

    def require(self, q: Sequence[float], reported: Pose) -> None:
        """Require that a reported pose (12,) matches joint angles q (n,) [rad].

        Raises:
            StoppedError: It does not; one of the two is wrong.
        """
        ours = self.pose(q)
        away = hypot(*(a - b for a, b in zip(ours[9:], reported[9:], strict=True)))
        turned = acos(
            min(max((sum(a * b for a, b in zip(ours[:9], reported[:9], strict=True)) - 1.0) / 2.0, -1.0), 1.0)
        )
        if not (away <= TOOL_M and turned <= TOOL_RAD):
            raise StoppedError(
                f"the controller reports its tool {1e3 * away:.3g} mm and {turned:.3f} rad away from where its joint "
                f"angles put it (limits {1e3 * TOOL_M:g} mm, {TOOL_RAD:g} rad): a joint angle, the tool set at the "
                "controller or the arm's calibration is wrong"
            )


def pose_of(position: Sequence[float], vector: Sequence[float]) -> tuple[float, ...]:
    """Return the pose (12,) of a position (3,) [m] and a rotation vector (3,) [rad]."""
    angle = sqrt(sum(value * value for value in vector))
    if angle < 1e-12:
        return (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, *position)
    x, y, z = (value / angle for value in vector)
    c, s = cos(angle), sin(angle)
    d = 1.0 - c
    return (
        c + x * x * d, y * x * d + z * s, z * x * d - y * s,
        x * y * d - z * s, c + y * y * d, z * y * d + x * s,
        x * z * d + y * s, y * z * d - x * s, c + z * z * d,
        *position,
    )  # fmt: skip


def _turned(pose: Pose, angle: float) -> Pose:
    """Return a pose turned about its own z axis by an angle [rad]."""
    c, s = cos(angle), sin(angle)
    a, b, d, e, f, g, *rest = pose
    return (c * a + s * e, c * b + s * f, c * d + s * g, c * e - s * a, c * f - s * b, c * g - s * d, *rest)


def _times(pose: Pose, link: Pose) -> Pose:
    """Return the composition of two poses."""
    a, b, c, d, e, f, g, h, i, x, y, z = pose
    turned = [(a * u + d * v + g * w, b * u + e * v + h * w, c * u + f * v + i * w) for u, v, w in zip(
        link[0::3], link[1::3], link[2::3], strict=True
    )]  # fmt: skip
    (ox, oy, oz) = turned[3]
    return (*turned[0], *turned[1], *turned[2], ox + x, oy + y, oz + z)
