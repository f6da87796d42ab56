"""The lab of a UR: the stand-in of this package, its port for what a person would do, and its tracker."""

from typing import Any

from td3robot.geometry import quaternion
from td3robot.robots.cells.ur import UrCell, UrConfig
from td3robot.robots.ur.urcap import ACTIVE
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
        self.cell: UrCell = UrCell.model_validate(_cell(config))
        self.simulator = start_ur_simulator(config.host, **_settings(config))

    def place(self, name: str, pose: Pose) -> None:
        """Place an object at a pose in the base frame, at rest."""
        self.simulator.place(name, pose.position.tolist(), quaternion(pose.rotation).tolist())

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
        """End the process. May be repeated."""
        self.simulator.close()


def _cell(config: SimulatorConfig) -> dict[str, Any]:
    stream_hz = config.stream_hz or config.preset.stream_hz
    usual, timeout_scale = UrConfig(host=config.host), config.timeout_scale
    ur = {
        "late_periods": usual.late_periods * timeout_scale,
        "max_state_age_s": min(usual.max_state_age_s * timeout_scale, 1.0),
        "watchdog_hz": max(usual.watchdog_hz / timeout_scale, 2.0),
    }
    cell: dict[str, Any] = {
        "robot": config.robot.model_dump() | {"backend": "ur"},
        "ur": {"host": config.host, "rtde_rate_hz": stream_hz or usual.rtde_rate_hz} | ur,
    }
    if config.objects:
        cell["tracker"] = {"kind": "udp", "host": config.host, "port": TRACKER_PORT}
    return cell


def _settings(config: SimulatorConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {"robot": config.robot, **config.preset.settings()}
    if config.objects:
        settings["objects"] = objects_on_table(config.objects)
        settings["tracker"] = f"{config.host}:{TRACKER_PORT}"
    if config.faults is not None:
        settings["faults"] = load_faults(config.faults)
    return settings


SESSIONS.register("ur", UrSession)
