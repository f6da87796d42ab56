"""A UR controller through ur_rtde, every call checked. The one file that imports ur_rtde.

Its constructors hold the interpreter's lock, and it crashes the process when the connection is lost: all of this
lives in the worker process of ``worker.py``, and nowhere else.
"""

import re
import socket
import struct
from math import isfinite
from time import monotonic, sleep
from typing import Any

from td3robot.robots.ur import JOINTS
from td3robot.robots.ur.shared_memory import WorkerState

DASHBOARD_PORT, RTDE_PORT = 29999, 30004
# The e-Series' generation of PolyScope: 3 is CB3's, 10 is PolyScope X.
POLYSCOPE = 5
# UR's numbers of safety modes and robot modes (RTDE guide).
NORMAL, REDUCED, PROTECTIVE_STOP, SAFEGUARD_STOP = 1, 2, 3, 5
EMERGENCY_STOPS = (6, 7)
RUNNING = 7
# A protective stop may be unlocked 5 s after it happened (UR user manual); a little more, for other clocks.
UNLOCK_AFTER_S = 5.5
# Speed and acceleration are arguments of servoJ that the controller does not use.
UNUSED = 0.5


class StoppedError(Exception):
    """The arm no longer follows.

    Attributes:
        reason: Why, as one clause for a message.
        connected: Whether the connection to the controller can still be used.
    """

    def __init__(self, reason: str, connected: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.connected = reason, connected


class ControllerConnection:
    """The connection to one controller: measured states in, servo targets out.

    Args:
        settings: ``UrConfig`` as plain values.
        control: Whether the arm will be moved. Without it nothing is uploaded, and only states are read.
    """

    def __init__(self, settings: dict[str, Any], control: bool) -> None:
        self._host, self._settings = settings["host"], settings
        self._control_wanted = control
        self._control: Any = None
        self._receive: Any = None

    def connect(self, unlock_after_s: float | None) -> dict[str, Any]:
        """Check the robot, open its interfaces, upload the control script and arm the watchdog.

        Args:
            unlock_after_s: Wait so long and unlock where a protective stop holds the arm; None does not unlock.

        Returns:
            What the robot says of itself, for reports.

        Raises:
            StoppedError: It is not there, not this robot, or not ready to be moved.
            ImportError: ur_rtde is not installed.
        """
        from dashboard_client import DashboardClient
        from rtde_receive import RTDEReceiveInterface

        self._require_controller()
        dashboard = DashboardClient(self._host)
        try:
            dashboard.connect(int(1e3 * self._settings["connect_timeout_s"]))
            facts = self._identify(dashboard)
            rate = float(self._settings["rtde_rate_hz"])
            self._receive = RTDEReceiveInterface(self._host, rate)
            if unlock_after_s is not None and self._receive.getSafetyMode() == PROTECTIVE_STOP:
                sleep(unlock_after_s)
                self._unlock(dashboard)
            if self._control_wanted:
                self._require_ready(dashboard)
                self._take_control(rate)
            dashboard.disconnect()
        except RuntimeError as error:  # ur_rtde's only type; boost's socket errors arrive as it too
            raise StoppedError(
                f"the controller at {self._host} cannot be used: {' '.join(str(error).split())}", False
            ) from None
        return facts | {
            "payload_kg": float(self._receive.getPayload()),
            "tcp_pose": list(self._receive.getActualTCPPose()),
            "q": list(self._receive.getActualQ()),
        }

    def observe(self, now: float, before: WorkerState) -> dict[str, Any]:
        """Give the fields of a new state, or none where nothing new arrived.

        Angles, velocities and time come from separate calls; they are asked again where a package arrived in between.
        """
        receive = self._receive
        time = receive.getTimestamp()
        if time == before.controller_time:
            return {}
        for _ in range(3):
            q, dq, again = receive.getActualQ(), receive.getActualQd(), receive.getTimestamp()
            if again == time:
                break
            time = again
        if len(q) != JOINTS or len(dq) != JOINTS or not all(map(isfinite, (*q, *dq))):
            raise StoppedError(f"the controller reports joint angles {q} and velocities {dq}, which are not usable")
        return {
            "stamp": now,
            "controller_time": time,
            "q": tuple(q),
            "dq": tuple(dq),
            "speed_scaling": receive.getSpeedScaling(),
            "speed_slider": receive.getTargetSpeedFraction(),
            "safety_mode": receive.getSafetyMode(),
            "robot_mode": receive.getRobotMode(),
            "runtime_state": receive.getRuntimeState(),
            "program_running": int(self._control is not None and self._control.isProgramRunning()),
        }

    def require_healthy(self, state: WorkerState, now: float) -> None:
        """Judge the latest state.

        Raises:
            StoppedError: The arm is stopped, or its state is no longer known.
        """
        if not self._receive.isConnected():
            raise StoppedError(
                "the connection to the controller was lost; see to network and controller", connected=False
            )
        age, limit = now - state.stamp, self._settings["max_state_age_s"]
        if age > limit:
            raise StoppedError(
                f"the controller's clock has not moved for {age:.2f} s (limit {limit:g} s)", connected=False
            )
        if not self._control_wanted:
            return
        if (reason := _stopped_by_safety(state.safety_mode)) is not None:
            raise StoppedError(reason)
        if not state.program_running:
            raise StoppedError(
                "the control script no longer runs on the controller: its watchdog stopped it, or somebody at the "
                "pendant or another client did"
            )

    def servo(self, q: list[float]) -> None:
        """Stream one target q (n,) [rad].

        Raises:
            StoppedError: It is not six finite angles, or the controller refused it.
        """
        if len(q) != JOINTS or not all(map(isfinite, q)):
            raise StoppedError(f"target {q} is not {JOINTS} finite joint angles and was not sent")
        settings = self._settings
        tick = 1.0 / settings["rtde_rate_hz"]
        if not self._control.servoJ(q, UNUSED, UNUSED, tick, settings["lookahead_s"], settings["gain"]):
            raise StoppedError("the controller refused a target (servoJ returned false)")

    def kick(self) -> None:
        """Tell the watchdog that somebody is here.

        Raises:
            StoppedError: The controller did not take it.
        """
        if not self._control.kickWatchdog():
            raise StoppedError("the controller did not take the watchdog's sign of life (kickWatchdog returned false)")

    def servo_stop(self) -> None:
        """End servoing; the controller brings the arm to rest and holds it.

        Raises:
            StoppedError: The controller refused.
        """
        if not self._control.servoStop(self._settings["servo_stop_deceleration_m_s2"]):
            raise StoppedError("the controller refused to end servoing (servoStop returned false)")

    def leave(self) -> None:
        """End the control script, where it runs; the arm stays where it is, held by the controller."""
        if self._control is not None and self._control.isConnected() and self._control.isProgramRunning():
            self._control.stopScript()

    def _require_controller(self) -> None:
        """Find out in time, and with a clear word, that nobody is there: ur_rtde would wait, or crash."""
        timeout_s = min(self._settings["connect_timeout_s"], 3.0)
        _require_listener(self._host, RTDE_PORT, timeout_s)
        try:
            _require_listener(self._host, DASHBOARD_PORT, timeout_s)
        except StoppedError as nobody:
            if (version := _rtde_version(self._host, timeout_s)) is not None and version[0] != POLYSCOPE:
                raise StoppedError(_other_polyscope(self._host, *version), connected=False) from None
            raise nobody from None

    def _identify(self, dashboard: Any) -> dict[str, Any]:
        polyscope = dashboard.polyscopeVersion().strip()
        # A CB3's UR5 gives the same model as an e-Series' UR5e, and is another arm: ask for the version first.
        version = re.search(r"(\d+)\.(\d+)", polyscope)
        if version is not None and int(version[1]) != POLYSCOPE:
            raise StoppedError(_other_polyscope(self._host, int(version[1]), int(version[2])))
        model, models = dashboard.getRobotModel().strip(), self._settings["models"]
        if model not in models:
            raise StoppedError(
                f"the robot at {self._host} says it is a {model!r}, not one of {', '.join(models)}, and what was "
                "trained for one arm does not run on another; check ur.host, robot.arm and ur.models"
            )
        serial, wanted = dashboard.getSerialNumber().strip(), self._settings.get("serial_number")
        if wanted not in (None, serial):
            raise StoppedError(
                f"the robot at {self._host} has serial number {serial}, and the cell's file was made for {wanted}; "
                "check ur.host, or measure the cell anew and set ur.serial_number"
            )
        return {"model": model, "serial_number": serial, "polyscope": polyscope}

    def _unlock(self, dashboard: Any) -> None:
        try:
            dashboard.unlockProtectiveStop()
        except RuntimeError as error:
            raise StoppedError(
                f"the protective stop could not be unlocked: {error}; unlock it at the pendant"
            ) from None
        self._await(lambda: self._receive.getSafetyMode() in (NORMAL, REDUCED), "leave its protective stop")

    def _require_ready(self, dashboard: Any) -> None:
        if (reason := _stopped_by_safety(self._receive.getSafetyMode())) is not None:
            raise StoppedError(reason)
        if self._receive.getRobotMode() != RUNNING:
            raise StoppedError(
                f"the arm is not ready ({dashboard.robotmode().strip()}): power it on and release its brakes at the "
                "pendant, then try again"
            )
        if not dashboard.isInRemoteControl():
            raise StoppedError(
                "the robot is in local control: switch it to remote control at the pendant, then try again"
            )

    def _take_control(self, rate: float) -> None:
        from rtde_control import RTDEControlInterface

        self._control = RTDEControlInterface(self._host, rate)
        self._await(self._control.isProgramRunning, "start the control script")
        # Watchdogs go with the script: every upload needs a new one.
        if not self._control.setWatchdog(self._settings["watchdog_hz"]):
            raise StoppedError("the controller's watchdog could not be set (setWatchdog returned false)")

    def _await(self, condition: Any, what: str) -> None:
        limit = self._settings["connect_timeout_s"]
        end = monotonic() + limit
        while not condition():
            if monotonic() > end:
                raise StoppedError(f"the controller did not {what} within {limit:g} s")
            sleep(0.01)


def _require_listener(host: str, port: int, timeout_s: float) -> None:
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError as error:
        raise StoppedError(
            f"there is no UR controller at {host}, port {port} ({error.strerror or error}); check ur.host, the cable "
            "and the robot's network settings",
            connected=False,
        ) from None


def _rtde_version(host: str, timeout_s: float) -> tuple[int, int] | None:
    """Ask RTDE for PolyScope's major and minor version; None where it does not answer as RTDE does."""
    request, answer = struct.Struct(">HB"), struct.Struct(">HB4I")
    try:
        with socket.create_connection((host, RTDE_PORT), timeout=timeout_s) as link:
            link.sendall(request.pack(request.size, ord("v")))
            data = b""
            while len(data) < answer.size:
                if not (received := link.recv(answer.size - len(data))):
                    return None
                data += received
    except OSError:
        return None
    size, kind, major, minor, _, _ = answer.unpack(data)
    return (major, minor) if (size, kind) == (answer.size, ord("v")) else None


def _other_polyscope(host: str, major: int, minor: int) -> str:
    """Say why a controller with another PolyScope than 5 is not driven."""
    if major < POLYSCOPE:
        return (
            f"the controller at {host} runs PolyScope {major}.{minor}, which is a CB3: its arms have other kinematics "
            "than the e-Series arms of the same names, and nothing here describes them; use an e-Series"
        )
    return (
        f"the controller at {host} runs PolyScope X {major}.{minor}: ur_rtde starts no program on it before 10.10 and "
        "then drops every command in silence, and nobody has tried this driver on a later one; use PolyScope 5"
    )


def _stopped_by_safety(mode: int) -> str | None:
    if mode in (NORMAL, REDUCED):
        return None
    if mode == PROTECTIVE_STOP:
        return "a protective stop holds the arm: find its cause before anything else"
    if mode in EMERGENCY_STOPS:
        return (
            "an emergency stop holds the arm: release the button, then power the arm on and release its brakes at the "
            "pendant"
        )
    if mode == SAFEGUARD_STOP:
        return "a safeguard stop holds the arm: close the safeguard"
    return f"the controller's safety system is in mode {mode} (violation, fault or recovery): see the pendant"
