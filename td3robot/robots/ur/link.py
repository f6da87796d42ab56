"""A UR controller through ur_rtde, with every call checked. The only file that imports ur_rtde.

Its constructors hold the interpreter's lock, and it crashes the process when the connection is lost, so all of this
lives in the worker process and nowhere else.
"""

import socket
from contextlib import suppress
from dataclasses import dataclass
from math import hypot, isfinite
from time import monotonic, sleep
from typing import Any, ClassVar

from td3robot.robots.driver.link import ArmLink, StoppedError, StreamSettings, connection_lost, require_rest
from td3robot.robots.driver.plausibility import pose_of
from td3robot.robots.driver.shared_memory import WorkerState
from td3robot.robots.ur import JOINTS
from td3robot.robots.ur.connection import connection_refused_message, explain_ur_error, send_at_once
from td3robot.robots.ur.generations import (
    DASHBOARD_PORT,
    POLYSCOPE_5,
    RTDE_PORT,
    generation_named,
    refusal,
    rtde_version,
    version_in,
)

# UR's numbers of safety modes and robot modes (RTDE guide).
NORMAL, REDUCED, PROTECTIVE_STOP, SAFEGUARD_STOP = 1, 2, 3, 5
EMERGENCY_STOPS = (6, 7)
RUNNING = 7
# Share of the watchdog's period that may pass while the controller ends servoing.
UNFED = 0.25
# The controller may slow the arm down for this long [s].
SLOWED_S = 0.2
# With no state for this long, three at 125 Hz, targets wait [s].
WAITS_AFTER_S = 0.025
# No component of a tool's pose is this large [m, rad].
ANYWHERE = 100.0
# Speed and acceleration are arguments of servoJ that the controller does not use.
UNUSED = 0.5


@dataclass(frozen=True, slots=True)
class UrState(WorkerState):
    """A UR's state.

    Attributes:
        speed_scaling: Share of a motion's speed that the controller lets through, 0 to 1.
        speed_slider: The slider on the pendant, 0 to 1.
        safety_mode, robot_mode, runtime_state: The controller's numbers for them.
        program_running: 1 while the control script runs.
    """

    q: tuple[float, ...] = (0.0,) * JOINTS
    dq: tuple[float, ...] = (0.0,) * JOINTS
    target: tuple[float, ...] = (0.0,) * JOINTS
    tool: tuple[float, ...] = (0.0,) * 12
    force: tuple[float, ...] = (0.0,) * 6
    speed_scaling: float = 0.0
    speed_slider: float = 0.0
    safety_mode: int = 0
    robot_mode: int = 0
    runtime_state: int = 0
    program_running: int = 0


class UrLink(ArmLink):
    """The connection to one controller: measured states in, servo targets out.

    Args:
        settings: ``UrConfig`` as plain values.
        stream: How the worker streams.
    """

    first: ClassVar[WorkerState] = UrState()
    # ur_rtde's; boost's socket errors arrive as these, too, out of the call that met them.
    client_errors = (RuntimeError,)

    def __init__(self, settings: dict[str, Any], stream: StreamSettings) -> None:
        super().__init__(settings, stream)
        self._host = settings["host"]
        self._generation = generation_named(settings.get("generation", POLYSCOPE_5.name))
        self._slow: float = UNFED * settings["servo_stop_deceleration_m_s2"] / settings["watchdog_hz"]
        self._control: Any = None
        self._receive: Any = None
        self._slowed_since = self._asked_at = 0.0

    def connect(self) -> dict[str, Any]:
        """Check the robot, open its interfaces, upload the control script and arm the watchdog.

        When the operator recovers the robot, this waits out and unlocks a protective stop that holds the arm.
        """
        from dashboard_client import DashboardClient
        from rtde_receive import RTDEReceiveInterface

        self._require_controller()
        dashboard, what = DashboardClient(self._host), "dashboard server (port 29999)"
        try:
            dashboard.connect(int(1e3 * self._settings["connect_timeout_s"]))
            facts = self._identify(dashboard)
            rate, what = float(self._settings["rtde_rate_hz"]), "RTDE server (port 30004)"
            self._receive = RTDEReceiveInterface(self._host, rate, list(self._generation.outputs))
            unlock_after_s = self._stream.recover_after_s
            if unlock_after_s is not None and self._receive.getSafetyMode() == PROTECTIVE_STOP:
                sleep(unlock_after_s)
                self._unlock(dashboard)
            if self._stream.control:
                self._require_ready(dashboard)
                what = "control (ports 30004, 30003 and 29999)"
                self._take_control(rate)
            dashboard.disconnect()
        except (*self.client_errors, UnicodeDecodeError) as error:
            raise StoppedError(explain_ur_error(error, self._host, what), False) from None
        return facts | {
            "payload_kg": float(self._receive.getPayload()),
            "tcp_pose": list(self._receive.getActualTCPPose()),
            "q": list(self._receive.getActualQ()),
        }

    def observe(self, now: float, before: UrState) -> dict[str, Any]:
        """Return the fields of a new state, or none if nothing new arrived.

        Angles, velocities, tool and time come from separate calls, which are repeated if a package arrived in between.
        """
        receive = self._receive
        time = receive.getTimestamp()
        if time == before.controller_time:
            return {}
        for _ in range(3):
            q, dq = receive.getActualQ(), receive.getActualQd()
            tool, speed, force = receive.getActualTCPPose(), receive.getActualTCPSpeed(), receive.getActualTCPForce()
            if (again := receive.getTimestamp()) == time:
                break
            time = again
        else:
            return {}
        if len(q) != JOINTS or len(dq) != JOINTS or not all(map(isfinite, (*q, *dq))):
            raise StoppedError(f"the controller reports joint angles {q} and velocities {dq}, which are not usable")
        if len(tool) != 6 or not all(abs(value) < ANYWHERE for value in tool):
            raise StoppedError(f"the controller reports the tool pose {tool}, which is not usable")
        if len(speed) != 6 or not all(map(isfinite, speed)):
            raise StoppedError(f"the controller reports the tool velocity {speed}, which is not usable")
        if len(force) != 6 or not all(map(isfinite, force)):
            raise StoppedError(f"the controller reports the tool force {force}, which is not usable")
        return {
            "stamp": now,
            "controller_time": time,
            "q": tuple(q),
            "dq": tuple(dq),
            "tool": pose_of(tool[:3], tool[3:]),
            "force": tuple(force),
            "tcp_speed": hypot(*speed[:3]),
            "speed_scaling": receive.getSpeedScaling(),
            "speed_slider": receive.getTargetSpeedFraction(),
            "safety_mode": receive.getSafetyMode(),
            "robot_mode": receive.getRobotMode(),
            "runtime_state": receive.getRuntimeState(),
            "program_running": int(self._control is not None and self._control.isProgramRunning()),
        }

    def require_healthy(self, state: UrState, now: float) -> None:
        """Check the latest state.

        Raises:
            StoppedError: The arm is stopped, or its state is no longer known.
        """
        if not self._receive.isConnected():
            raise connection_lost()
        self.require_recent(state, now)
        if not self._stream.control:
            return
        if (reason := _stopped_by_safety(state.safety_mode)) is not None:
            raise StoppedError(reason)
        if state.robot_mode != RUNNING:
            raise StoppedError(f"the arm is no longer running (robot mode {state.robot_mode}): see the pendant")
        if not state.program_running:
            raise StoppedError(
                "the control script no longer runs on the controller: its watchdog stopped it, or somebody at the "
                "pendant or another client did"
            )

    def require_streamable(self, state: UrState) -> None:
        """Raise if the arm is slowed down, because it would lag behind its targets.

        The pendant's slider does that, and so does the controller near its own limits, even with the slider at 100 %.
        """
        if state.speed_scaling >= self._settings["min_speed_scaling"]:
            self._slowed_since = state.stamp
        elif state.stamp - self._slowed_since > SLOWED_S and state.speed_slider >= self._settings["min_speed_scaling"]:
            raise StoppedError(
                f"the controller slows the arm down to {100 * state.speed_scaling:.0f} % by itself, as it does near "
                "its own limits: it does not follow"
            )
        if not state.speed_slider >= self._settings["min_speed_scaling"]:
            raise StoppedError(
                f"the pendant's speed slider went to {100 * state.speed_slider:.0f} % while the arm was driven"
            )

    def resting(self, state: UrState) -> tuple[float, ...]:
        """Return where the arm is, if the controller agrees: otherwise a motion would begin with a jump.

        Raises:
            StoppedError: The measured posture and the controller's target differ.
        """
        require_rest(state.q, self._receive.getTargetQ(), "measured posture", "the controller holds the arm")
        self._slowed_since = state.stamp
        return state.q

    def follows(self, state: UrState) -> bool:
        """Return whether the control script still runs."""
        return bool(state.program_running)

    def may_end(self, speed: float) -> bool:
        """Return whether the arm is so slow that ending servoing takes no time.

        While the controller ends it, ur_rtde waits, and nothing feeds the watchdog. An arm's tool is less than 1 m from
        any joint: its speed [m/s] is below the fastest joint's [rad/s] if one joint moves, and about equal otherwise.
        """
        return speed < self._slow

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
            raise StoppedError(
                "the controller refused a target (servoJ returned false): its control script ended or stands still"
            )

    def waited_s(self, state: UrState, now: float) -> float:
        """Return for how long of the time since the last call the newest state was too old to go on [s].

        What the network holds up in both directions arrives at once, so that the arm would hurry after it.
        """
        waits_since = max(self._asked_at, state.stamp + WAITS_AFTER_S)
        self._asked_at = now
        return max(0.0, now - waits_since)

    def feed_watchdog(self, state: UrState) -> None:
        """Feed the watchdog, if the control script runs.

        Raises:
            StoppedError: The controller did not accept it.
        """
        if state.program_running and not self._control.kickWatchdog():
            raise StoppedError("the controller did not take the watchdog's sign of life (kickWatchdog returned false)")

    def servo_stop(self) -> None:
        """End servoing; the controller brings the arm to rest and holds it.

        Raises:
            StoppedError: The controller refused.
        """
        if not self._control.servoStop(self._settings["servo_stop_deceleration_m_s2"]):
            raise StoppedError("the controller refused to end servoing (servoStop returned false)")

    def leave(self) -> None:
        """End the control script if it runs; the arm stays where it is, held by the controller."""
        with suppress(*self.client_errors):  # a controller that cannot be reached ends it by its watchdog
            if self._control is not None and self._control.isConnected() and self._control.isProgramRunning():
                self._control.stopScript()

    def _require_controller(self) -> None:
        """Raise early and clearly if nothing is there: ur_rtde would wait, or crash."""
        timeout_s = min(self._settings["connect_timeout_s"], 3.0)
        _require_listener(self._host, RTDE_PORT, timeout_s)
        try:
            _require_listener(self._host, DASHBOARD_PORT, timeout_s)
        except StoppedError as missing:
            version = rtde_version(self._host, RTDE_PORT, timeout_s)  # PolyScope X has RTDE and no dashboard
            if version is not None and (why := refusal(self._host, version)) is not None:
                raise StoppedError(why, connected=False) from None
            raise missing from None

    def _identify(self, dashboard: Any) -> dict[str, Any]:
        polyscope = dashboard.polyscopeVersion().strip()
        # A CB3 UR5 reports the same model as an e-Series UR5e, but is another arm: ask for the version first.
        version = version_in(polyscope)
        if version is not None and (why := refusal(self._host, version)) is not None:
            raise StoppedError(why)
        if version is not None and version[0] not in self._generation.majors:
            raise StoppedError(
                f"the controller at {self._host} runs PolyScope {version[0]}.{version[1]}, and the cell's arm has "
                f"controllers with PolyScope {self._generation.name}; check ur.host and robot.arm"
            )
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
        if "remote" in self._generation.commands and not dashboard.isInRemoteControl():
            raise StoppedError(
                "the robot is in local control: switch it to remote control at the pendant, then try again"
            )

    def _take_control(self, rate: float) -> None:
        from rtde_control import RTDEControlInterface

        self._control = RTDEControlInterface(self._host, rate)
        self._await(self._control.isProgramRunning, "start the control script")
        # A watchdog ends with its script: every upload needs a new one.
        if not self._control.setWatchdog(self._settings["watchdog_hz"]):
            raise StoppedError("the controller's watchdog could not be set (setWatchdog returned false)")
        send_at_once(self._host, RTDE_PORT)

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
        raise StoppedError(connection_refused_message(host, port, error), connected=False) from None


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
