"""The lab of a UR: the stand-in of this package, its port for what a person would do, and its tracker."""

from collections.abc import Mapping
from typing import Any

from td3robot.errors import ConfigError
from td3robot.robots.cells.ur import GripperConfig, UrCell, UrConfig
from td3robot.robots.ur.urcap import ACTIVE
from td3robot.simulators.camera_process import CellCamera
from td3robot.simulators.faults import load_faults
from td3robot.simulators.process import StandstillMonitor, start_ur_simulator
from td3robot.simulators.sessions import SESSIONS, SimulatorConfig, SimulatorSession
from td3robot.simulators.settings import (
    PORTS,
    known_arms,
    objects_on_table,
)
from td3robot.state import Pose

TRACKER_PORT = 47300


class UrSession(SimulatorSession):
    """A stand-in for a UR controller with a Robotiq gripper; see :class:`SimulatorSession`."""

    arms = known_arms()
    ports = PORTS
    cell_type = UrCell

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        UrCell.model_validate(_cell(config, None))  # first, so that a wrong value starts nothing
        if config.eyes is not None:
            _require_seen(config)
        self.simulator = start_ur_simulator(config.host, **_settings(config))
        try:
            if config.eyes is not None:
                self.camera = CellCamera(config.eyes, self.simulator.config)
            self.cell: UrCell = UrCell.model_validate(_cell(config, self.camera))
        except BaseException:
            self.close()
            raise

    def place(self, poses: Mapping[str, Pose]) -> None:
        """Place objects at poses in the base frame, at rest."""
        self.simulator.place(poses)

    def begin_episode(self, number: int) -> None:
        """Announce an episode, so that its faults begin."""
        self.simulator.begin_episode(number)

    def clear_faults(self) -> None:
        """End faults, release the emergency stop, switch to remote control and 100 % speed.

        A protective stop stays for ``recover``; after any other fault, the controller restarts with the arm where it
        is.
        """
        self.simulator.ask(clear_faults=True, emergency_stop=False, remote=True, speed_slider=1.0)
        state = self.simulator.state()
        if state["safety_mode"] != "PROTECTIVE_STOP":
            self.simulator.reset(state["q"])

    def gripper_ready(self) -> bool:
        """Whether the gripper is active."""
        return bool(self.simulator.state()["gripper"]["STA"] == ACTIVE)

    def standstill_monitor(self) -> StandstillMonitor:
        """Return a watch of the arm's speed, not started yet."""
        return StandstillMonitor(self.simulator)

    def reset_wire(self) -> None:
        """Reset the extremes of :meth:`wire`."""
        self.simulator.ask(reset_wire=True)

    def wire(self) -> dict[str, Any]:
        """Return the extremes that the controller saw."""
        wire: dict[str, Any] = self.simulator.state()["wire"]
        return wire

    def clock(self) -> dict[str, float]:
        """Return how well the stand-in kept time."""
        clock: dict[str, float] = self.simulator.state()["clock"]
        return clock

    def close(self) -> None:
        """End the processes. May be repeated."""
        if self.camera is not None:
            self.camera.close()
        self.simulator.close()


def _require_seen(config: SimulatorConfig) -> None:
    """Refuse faults of a tracker that a camera takes the place of."""
    faults = () if config.faults is None else load_faults(config.faults)
    for fault in faults:
        if fault.of_tracker:
            raise ConfigError(
                f"{config.faults}: {fault.kind} is a fault of the poses that the simulator tells, and with --eyes a "
                "camera sees them; leave one of the two out"
            )


def _cell(config: SimulatorConfig, camera: CellCamera | None) -> dict[str, Any]:
    stream_hz = config.stream_hz or config.preset.stream_hz
    usual, fingers, timeout_scale = UrConfig(host=config.host), GripperConfig(), config.timeout_scale
    ur = {
        "late_periods": usual.late_periods * timeout_scale,
        "max_state_age_s": min(usual.max_state_age_s * timeout_scale, 1.0),
        "watchdog_hz": max(usual.watchdog_hz / timeout_scale, 2.0),
    }
    cell: dict[str, Any] = {
        "robot": config.robot.model_dump() | {"backend": "ur"},
        "ur": {"host": config.host, "rtde_rate_hz": stream_hz or usual.rtde_rate_hz} | ur,
        "gripper": {
            "max_age_s": min(fingers.max_age_s * timeout_scale, 5.0),
            "answer_timeout_s": min(fingers.answer_timeout_s * timeout_scale, 2.0),
        },
    }
    if camera is not None:
        calibration, tags = camera.files
        cell["tracker"] = {
            "kind": "tags", "source": camera.url, "camera": calibration, "tags": tags, "page_port": camera.page_port,
        }  # fmt: skip
    elif config.objects:
        cell["tracker"] = {"kind": "udp", "host": config.host, "port": TRACKER_PORT}
    return cell


def _settings(config: SimulatorConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {"robot": config.robot, **config.preset.settings()}
    if config.objects:
        settings["objects"] = objects_on_table(config.objects)
        if config.eyes is None:
            settings["tracker"] = f"{config.host}:{TRACKER_PORT}"
    if config.faults is not None:
        settings["faults"] = load_faults(config.faults)
    return settings


SESSIONS.register("ur", UrSession)
