"""Checks whether a controller's report can be true. Plain Python: this runs in the worker's loop, on every state.

A stop reacts to measurements. Everything downstream would believe one that freezes, jumps, drifts or comes from another
time, so the worker stops the arm, as well as it still can, and says which check failed.
"""

from collections import deque
from math import exp, isfinite

from td3robot.robots.driver.link import StoppedError, StreamSettings
from td3robot.robots.driver.shared_memory import WorkerState
from td3robot.robots.driver.tool import ToolCheck

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
