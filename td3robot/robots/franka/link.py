"""An FR3 and its hand through franka-rs, with every call checked. The only file that imports its module ``franka``."""

import socket
import threading
from dataclasses import dataclass
from math import inf, isfinite
from time import monotonic
from typing import Any, ClassVar

from td3robot.robots.driver.fingers import DRIVEN_S, FingerWatch
from td3robot.robots.driver.link import ArmLink, StoppedError, StreamSettings, require_rest
from td3robot.robots.driver.shared_memory import WorkerState

OPEN_WIDTH_M = 0.08
# From this closed fraction on, the fingers grasp with force; below, they move to a width.
GRASP_FROM = 0.9
# Requests nearer to the last one than this count as the same; the hand takes 0.1 s for any command [closed fraction].
SAME = 0.02
# Fingers at rest never move away from what they were told by more than this, and their width is this noisy [m].
MOVED_M, NOISE_M = 0.003, 0.0003
# Fingers that met nothing end closer together than this, and the hand still calls it a grasp [m].
NOTHING_M = 0.002


class Hand:
    """Fingers that go to the latest requested position once they have finished the one before it.

    Attributes:
        refused: Commands that the hand did not carry out, for example because something was in the way.
        fault: Why its state is no longer known, or None.
    """

    def __init__(self, robot_host: str, speed_m_s: float, force_n: float) -> None:
        import franka

        self._error = franka.FrankaError
        self._hand: Any = franka.Gripper(robot_host)
        self._speed, self._force = speed_m_s, force_n
        self._wake = threading.Condition()
        self._watch, self._asked_at = FingerWatch(MOVED_M, NOISE_M), 0.0
        self._wanted: float | None = None
        self._commanded: float | None = None
        self.width, self.grasped, self.stamp = 0.0, False, 0.0
        self.refused = 0
        # The hand reports a grasp until its next command is done, even while its fingers open. Its report about
        # commands before ours is taken as it is.
        self._gripping = True
        self.fault: str | None = None
        self._read_state()
        for work, name in ((self._poll, "hand-poll"), (self._act, "hand-act")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def go_to(self, closed: float) -> None:
        """Go to a closed fraction in [0, 1]; below 0, stay.

        The same one is sent again if another program moved the fingers in between; while requests keep coming, that is
        a fault.
        """
        if closed < 0.0:
            return
        with self._wake:
            self._asked_at = monotonic()
            if self._wanted is None or abs(closed - self._wanted) >= SAME:
                self._wanted = closed
                self._wake.notify()

    def _read_state(self) -> None:
        state = self._hand.read_once()
        self.width, self.stamp = state.width, monotonic()
        self.grasped = state.is_grasped and state.width > NOTHING_M and self._gripping

    def _poll(self) -> None:
        try:
            while self.fault is None:
                self._read_state()
                self._require_ours()
        except self._error as error:
            self.fault = f"the hand no longer reports: {' '.join(str(error).split())}"

    def _require_ours(self) -> None:
        """Take fingers that something else moved for a fault while requests keep coming; else forget the last one."""
        with self._wake:
            rest = self._watch.moved_from(self.width, self.stamp)
            if rest is None:
                return
            if self.stamp - self._asked_at < DRIVEN_S:
                self.fault = (
                    f"the hand's fingers went from {1e3 * max(rest, 0.0):.1f} to {1e3 * self.width:.1f} mm apart "
                    "although td3robot did not move them: another program drives the hand, or somebody moved its "
                    "fingers; end that program, and look at the hand"
                )
            self._wanted = self._commanded = None
            self._watch.told(None, self.stamp)

    def _act(self) -> None:
        while self.fault is None:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted != self._commanded)
                self._commanded = closed = self._wanted
                if closed is not None:
                    self._watch.told(0.0 if closed >= GRASP_FROM else OPEN_WIDTH_M * (1.0 - closed), monotonic())
            if closed is not None:
                self._go(closed)

    def _go(self, closed: float) -> None:
        self._gripping = False
        try:
            if closed >= GRASP_FROM:
                self._hand.grasp(0.0, self._speed, self._force, 0.005, OPEN_WIDTH_M)
                self._gripping = True
            else:
                self._hand.move(OPEN_WIDTH_M * (1.0 - closed), self._speed)
        except self._error:
            self.refused += 1


def home_hand(host: str) -> None:
    """Home the hand to find its widest opening; its fingers close and open.

    Raises:
        StoppedError: There is no hand, or homing failed.
        ImportError: franka-rs is not installed.
    """
    import franka

    try:
        franka.Gripper(host).homing()
    except franka.FrankaError as error:
        raise StoppedError(f"the hand at {host} cannot be made ready: {' '.join(str(error).split())}") from None


def connect_hand(settings: dict[str, Any]) -> Hand:
    """Connect to the hand of a robot, by the settings of ``FrankaConfig``.

    Raises:
        StoppedError: There is no hand.
    """
    import franka

    try:
        return Hand(settings["host"], settings["hand_speed_m_s"], settings["hand_force_n"])
    except franka.FrankaError as error:
        raise StoppedError(
            f"the hand at {settings['host']} cannot be used ({' '.join(str(error).split())}); initialise it in Desk, "
            "or set franka.hand to false"
        ) from None


JOINTS = 7

ROBOT_PORT, HAND_PORT, FR3_PROTOCOL = 1337, 1338, 10
# The client ends a motion if the arm strays further than this from its start. Ours may go anywhere [rad].
ANYWHERE = 6.5
# A hand that has not reported for longer than this is a fault [s].
MAX_HAND_AGE_S = 0.5
# The robot's clock may fall this far behind ours before its time counts as slipped: deliveries may be late [s].
CLOCK_SLACK_S = 0.003
MODES = {
    "reflex": "a reflex holds the arm",
    "user_stopped": "the arm is stopped by its user: release the stop, then close the brakes again in Desk",
    "guiding": "somebody guides the arm by hand",
    "automatic_error_recovery": "the arm is recovering from an error",
    "other": "the arm is not ready: open its brakes and activate FCI in Desk",
}


@dataclass(frozen=True, slots=True)
class FrankaState(WorkerState):
    """An FR3's state.

    Attributes:
        q_d: (7,) the last command of the client's generator to the robot [rad].
        success_rate: Share of the last 100 commands that reached the robot in time.
        moving: 1 while the client's motion is open.
        width: Distance between the fingers [m].
        grasped: 1 while the hand reports that it holds something.
        hand_stamp: When the hand's state was received [s].
    """

    q: tuple[float, ...] = (0.0,) * JOINTS
    dq: tuple[float, ...] = (0.0,) * JOINTS
    target: tuple[float, ...] = (0.0,) * JOINTS
    tool: tuple[float, ...] = (0.0,) * 12
    force: tuple[float, ...] = (0.0,) * 6
    q_d: tuple[float, ...] = (0.0,) * JOINTS
    success_rate: float = 0.0
    moving: int = 0
    width: float = 0.0
    grasped: int = 0
    hand_stamp: float = 0.0


class FrankaLink(ArmLink):
    """The connection to one control box: measured states in, targets of the client's 1 kHz generator out.

    The client's generator, in Rust, limits acceleration and jerk. Its motion stays open from connecting to leaving, and
    the arm rests on the last target in between: ending a motion takes the client half a second without any state.

    Args:
        settings: ``FrankaConfig`` as plain values.
        stream: How the worker streams.
    """

    first: ClassVar[WorkerState] = FrankaState()

    def __init__(self, settings: dict[str, Any], stream: StreamSettings) -> None:
        super().__init__(settings, stream)
        self._robot: Any = None
        self._targets: Any = None
        self._hand: Hand | None = None
        self._hand_failed = False
        self._time: float | None = None
        self._clock_offset, self._clock_waited = inf, 0.0

    def connect(self) -> dict[str, Any]:
        """Open the connection, check the robot, and open a motion if the arm will be moved.

        When the operator recovers the robot, the errors of a reflex are cleared first.
        """
        import franka

        self._errors = franka.FrankaError
        host = self._settings["host"]
        _require_listener(host, self._settings["connect_timeout_s"])
        try:
            self._robot = franka.Robot(host, realtime=self._settings["realtime"])
            if self._robot.fci_version != FR3_PROTOCOL:
                raise StoppedError(f"the robot at {host} speaks protocol {self._robot.fci_version}: it is no FR3")
            facts = self._begin()
        except self._errors as error:
            raise StoppedError(f"the control box at {host} cannot be used: {_line(error)}", False) from None
        if self._settings["hand"]:
            self._hand = connect_hand(self._settings)
        return facts

    def observe(self, now: float, before: FrankaState) -> dict[str, Any]:
        """Return the fields of a new state, or of the hand alone if no new state arrived.

        Raises:
            StoppedError: The connection is lost, or the values are not usable.
        """
        try:
            state = self._robot.read_once() if self._targets is None else self._targets.state()
        except self._errors as error:
            raise self._stop_reason(f"the connection to the control box failed: {_line(error)}") from None
        if state.time == self._time:
            return self._fingers()
        self._time = state.time
        q, dq = state.q.tolist(), state.dq.tolist()
        if not all(map(isfinite, (*q, *dq))):
            raise StoppedError(f"the robot reports joint angles {q} and velocities {dq}, which are not usable")
        tool = _tool(state.O_T_EE)
        if not all(map(isfinite, tool)):
            raise StoppedError(f"the robot reports the tool pose {tool}, which is not usable")
        force = state.O_F_ext_hat_K.tolist()
        if not all(map(isfinite, force)):
            raise StoppedError(f"the robot reports the tool force {force}, which is not usable")
        self._mode, self._current_errors = state.robot_mode, list(state.current_errors)
        return {
            "stamp": now,
            "controller_time": state.time,
            "q": tuple(q),
            "dq": tuple(dq),
            "tool": tool,
            "force": tuple(force),
            "q_d": tuple(state.q_d.tolist()),
            "success_rate": state.control_command_success_rate,
            "moving": int(self._targets is not None and self._targets.running),
        } | self._fingers()

    def require_healthy(self, state: FrankaState, now: float) -> None:
        """Check the latest state.

        Raises:
            StoppedError: The arm is stopped, or its state is no longer known.
        """
        if self._targets is not None and not self._targets.running:
            raise self._stop_reason("the motion ended")
        self.require_recent(state, now)
        if self._stream.control:
            self._require_ready()
        hand = self._hand
        if hand is not None and not self._hand_failed and (hand.fault or now - hand.stamp > MAX_HAND_AGE_S):
            self._hand_failed = True  # said once: the arm can still be braked
            raise StoppedError(hand.fault or f"the hand has not reported for {now - hand.stamp:.2f} s")

    def servo(self, q: list[float]) -> None:
        """Hand one target q (n,) [rad] to the generator.

        Raises:
            StoppedError: The client refused it, or the motion ended.
        """
        try:
            self._targets.move_to(q)
        except (self._errors, ValueError) as error:
            raise self._stop_reason(f"a target was refused: {_line(error)}") from None

    def grip(self, closed: float) -> None:
        """Send the hand, if there is one, to a closed fraction."""
        if self._hand is not None:
            self._hand.go_to(closed)

    def resting(self, state: FrankaState) -> tuple[float, ...]:
        """Return the last target: the motion is open, and the arm rests on it.

        Raises:
            StoppedError: The arm, or the client's generator, is elsewhere: a motion would begin with a jump.
        """
        for where, q in (("measured posture", state.q), ("posture that the client holds", state.q_d)):
            require_rest(q, state.target, where, "the arm was sent to rest")
        return state.target

    def follows(self, state: FrankaState) -> bool:
        """Return whether the motion is open."""
        return self._targets is not None and bool(self._targets.running)

    def waited_s(self, state: FrankaState, now: float) -> float:
        """Return how long the robot's own clock has waited since the last call [s].

        A robot's clock does not wait; that of a stand-in on a busy computer does. The smallest difference between the
        two clocks is that of a timely delivery.
        """
        offset = state.stamp - state.controller_time
        self._clock_offset = min(self._clock_offset, offset)
        late = offset - self._clock_offset - self._clock_waited
        if late <= CLOCK_SLACK_S:
            return 0.0
        self._clock_waited += late
        return late

    def leave(self) -> None:
        """End the motion where the arm rests; the robot holds it."""
        targets, self._targets = self._targets, None
        if targets is not None and targets.running:
            targets.stop()

    def _fingers(self) -> dict[str, Any]:
        hand = self._hand
        return {} if hand is None else {"width": hand.width, "grasped": int(hand.grasped), "hand_stamp": hand.stamp}

    def _begin(self) -> dict[str, Any]:
        state = self._latest()
        if self._stream.recover_after_s is not None and state.robot_mode == "reflex":
            self._robot.automatic_error_recovery()
            state = self._latest()
        self._mode, self._current_errors = state.robot_mode, list(state.current_errors)
        facts = {
            "server_version": self._robot.server_version,
            "mode": state.robot_mode,
            "errors": self._current_errors,
            "q": state.q.tolist(),
            "tool_pose": state.O_T_EE.tolist(),
            "tool_mass_kg": float(state.m_ee),
        }
        if self._stream.control:
            self._require_ready()
            torque, force = self._settings["contact_torque_nm"], self._settings["contact_force_n"]
            self._robot.set_collision_behavior_simple([torque] * JOINTS, [torque] * JOINTS, [force] * 6, [force] * 6)
            self._targets = self._robot.joint_targets(
                fraction=self._settings["fraction"], max_deviation=ANYWHERE, backend="robot"
            )
        return facts

    def _latest(self) -> Any:
        """Return the latest state, skipping those in the socket's buffer, which keeps the oldest and not the newest."""
        self._robot.read_once()
        return self._robot.read_once()

    def _require_ready(self) -> None:
        if self._current_errors:
            raise StoppedError(f"a reflex holds the arm ({', '.join(self._current_errors)}): find its cause first")
        if (reason := MODES.get(self._mode)) is not None:
            raise StoppedError(reason)

    def _stop_reason(self, otherwise: str) -> StoppedError:
        """Return why the motion ended, from the client, which gives the reason only once."""
        targets, self._targets = self._targets, None
        if targets is None:
            return StoppedError(otherwise, connected=False)
        try:
            targets.stop()
        except self._errors as error:
            names = ", ".join(getattr(error, "errors", None) or ())
            lost = not names and "reflex" not in str(error)
            return StoppedError(f"a reflex stopped the arm ({names})" if names else _line(error), connected=not lost)
        return StoppedError(otherwise)


def _tool(pose: Any) -> tuple[float, ...]:
    """Return a tool's pose (4, 4) as columns and position, with its x axis turned to the fingers' sliding direction."""
    (a, b, c, x), (d, e, f, y), (g, h, i, z), _ = pose.reshape(4, 4).tolist()
    return (b, e, h, -a, -d, -g, c, f, i, x, y, z)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _require_listener(host: str, timeout_s: float) -> None:
    try:
        socket.create_connection((host, ROBOT_PORT), timeout=min(timeout_s, 3.0)).close()
    except OSError as error:
        raise StoppedError(
            f"there is no Franka control box at {host}, port {ROBOT_PORT} ({error.strerror or error}); check "
            "franka.host, the cable, and that FCI is active in Desk",
            connected=False,
        ) from None
