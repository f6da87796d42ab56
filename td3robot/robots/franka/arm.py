"""An FR3 through franka-rs, every call checked. With ``hand.py``, the only files that import its module ``franka``."""

import socket
from math import isfinite
from typing import Any

from td3robot.robots.franka.shared_memory import JOINTS, FrankaState
from td3robot.robots.ur.rtde import StoppedError

ROBOT_PORT, FR3_PROTOCOL = 1337, 10
# The client ends a motion whose arm strays further than this from where it began. Ours may go anywhere [rad].
ANYWHERE = 6.5
MODES = {
    "reflex": "a reflex holds the arm",
    "user_stopped": "the arm is stopped by its user: release the stop, then close the brakes again in Desk",
    "guiding": "somebody guides the arm by hand",
    "automatic_error_recovery": "the arm is recovering from an error",
    "other": "the arm is not ready: open its brakes and activate FCI in Desk",
}


class Arm:
    """The connection to one control box: measured states in, targets of the client's 1 kHz generator out.

    Args:
        settings: Those of ``FrankaConfig``.
        control: Whether the arm is to be moved; else only states are read.
    """

    def __init__(self, settings: dict[str, Any], control: bool) -> None:
        self._settings, self._control = settings, control
        self._robot: Any = None
        self._targets: Any = None
        self._time: float | None = None

    def connect(self, recover: bool) -> dict[str, Any]:
        """Open the connection, check the robot, and open a motion where the arm is to be moved.

        Args:
            recover: Clear the errors of a reflex first; at the operator's word only.

        Returns:
            What the robot says of itself, for reports.

        Raises:
            StoppedError: It is not there, not an FR3, or not ready to be moved.
            ImportError: franka-rs is not installed.
        """
        import franka

        self._errors = franka.FrankaError
        host = self._settings["host"]
        _require_listener(host, self._settings["connect_timeout_s"])
        try:
            self._robot = franka.Robot(host, realtime=self._settings["realtime"])
            if self._robot.fci_version != FR3_PROTOCOL:
                raise StoppedError(f"the robot at {host} speaks protocol {self._robot.fci_version}: it is no FR3")
            return self._begin(recover)
        except self._errors as error:
            raise StoppedError(f"the control box at {host} cannot be used: {_line(error)}", False) from None

    def observe(self, now: float) -> dict[str, Any]:
        """Give the fields of a new state, or none where nothing new arrived.

        Raises:
            StoppedError: The connection is lost, or the values are not usable.
        """
        try:
            state = self._robot.read_once() if self._targets is None else self._targets.state()
        except self._errors as error:
            raise self._why(f"the connection to the control box failed: {_line(error)}") from None
        if state.time == self._time:
            return {}
        self._time = state.time
        q, dq = state.q.tolist(), state.dq.tolist()
        if not all(map(isfinite, (*q, *dq))):
            raise StoppedError(f"the robot reports joint angles {q} and velocities {dq}, which are not usable")
        self._mode, self._current_errors = state.robot_mode, list(state.current_errors)
        return {
            "stamp": now,
            "robot_time": state.time,
            "q": tuple(q),
            "dq": tuple(dq),
            "q_d": tuple(state.q_d.tolist()),
            "success_rate": state.control_command_success_rate,
            "moving": int(self._targets is not None and self._targets.running),
        }

    def require_healthy(self, state: FrankaState, now: float) -> None:
        """Judge the latest state.

        Raises:
            StoppedError: The arm is stopped, or its state is no longer known.
        """
        if self._targets is not None and not self._targets.running:
            raise self._why("the motion ended")
        age, limit = now - state.stamp, self._settings["max_state_age_s"]
        if age > limit:
            raise StoppedError(f"the robot's clock has not moved for {age:.2f} s (limit {limit:g} s)", connected=False)
        if self._control:
            self._require_ready()

    def aim(self, q: list[float]) -> None:
        """Hand one target q (n,) [rad] to the generator.

        Raises:
            StoppedError: The client refused it, or the motion ended.
        """
        try:
            self._targets.move_to(q)
        except (self._errors, ValueError) as error:
            raise self._why(f"a target was refused: {_line(error)}") from None

    def moves(self) -> bool:
        """Whether the motion is open, so that targets reach the arm."""
        return self._targets is not None and bool(self._targets.running)

    def leave(self) -> None:
        """End the motion where the arm rests; the robot holds it."""
        targets, self._targets = self._targets, None
        if targets is not None and targets.running:
            targets.stop()

    def _begin(self, recover: bool) -> dict[str, Any]:
        state = self._latest()
        if recover and state.robot_mode == "reflex":
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
        if self._control:
            self._require_ready()
            torque, force = self._settings["contact_torque_nm"], self._settings["contact_force_n"]
            self._robot.set_collision_behavior_simple([torque] * JOINTS, [torque] * JOINTS, [force] * 6, [force] * 6)
            self._targets = self._robot.joint_targets(
                fraction=self._settings["fraction"], max_deviation=ANYWHERE, backend="robot"
            )
        return facts

    def _latest(self) -> Any:
        """Read past what waited in the socket's buffer, which keeps the oldest states and not the newest."""
        self._robot.read_once()
        return self._robot.read_once()

    def _require_ready(self) -> None:
        if self._current_errors:
            raise StoppedError(f"a reflex holds the arm ({', '.join(self._current_errors)}): find its cause first")
        if (reason := MODES.get(self._mode)) is not None:
            raise StoppedError(reason)

    def _why(self, otherwise: str) -> StoppedError:
        """Say why the motion ended, as the client knows it; ask once, since it is gone then."""
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
