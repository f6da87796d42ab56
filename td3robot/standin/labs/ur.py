"""The lab of a UR: the stand-in of this package, its port for what a person would do, and its tracker."""

from typing import Any

from td3robot.geometry import quaternion
from td3robot.robots.cells.ur import UrCell, UrConfig
from td3robot.robots.ur.urcap import ACTIVE
from td3robot.standin.fault_kinds import load_faults
from td3robot.standin.labs import LABS, Lab, Setup
from td3robot.standin.process import start_standin
from td3robot.standin.settings import (
    PORTS,
    known_arms,
    objects_on_table,
)
from td3robot.standin.watch import RestWatch
from td3robot.state import Pose

TRACKER_PORT = 47300


class UrLab(Lab):
    """A stand-in for a UR controller with a Robotiq gripper; see :class:`Lab`."""

    arms = known_arms()
    ports = PORTS

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.cell: UrCell = UrCell.model_validate(_cell(setup))
        self.standin = start_standin(setup.host, **_settings(setup))

    @classmethod
    def require_driver(cls) -> None:
        """Require ur_rtde."""
        UrCell.require_driver()

    def place(self, name: str, pose: Pose) -> None:
        """Place an object at a pose in the base frame, at rest."""
        self.standin.place(name, pose.position.tolist(), quaternion(pose.rotation).tolist())

    def begin_episode(self, number: int) -> None:
        """Announce an episode, so that its faults begin."""
        self.standin.begin_episode(number)

    def clear_faults(self) -> None:
        """End faults, release the emergency stop, switch to remote control and 100 % speed.

        A protective stop stays for ``recover``; after any other fault, the controller restarts with the arm where it
        is.
        """
        self.standin.ask(clear_faults=True, emergency_stop=False, remote=True, speed_slider=1.0)
        state = self.standin.state()
        if state["safety_mode"] != "PROTECTIVE_STOP":
            self.standin.reset(state["q"])

    def gripper_ready(self) -> bool:
        """Whether the gripper is active."""
        return bool(self.standin.state()["gripper"]["STA"] == ACTIVE)

    def watch(self) -> RestWatch:
        """Return a watch of the arm's speed, not started yet."""
        return RestWatch(self.standin)

    def reset_wire(self) -> None:
        """Reset the extremes of :meth:`wire`."""
        self.standin.ask(reset_wire=True)

    def wire(self) -> dict[str, Any]:
        """Return the extremes that the controller saw."""
        wire: dict[str, Any] = self.standin.state()["wire"]
        return wire

    def clock(self) -> dict[str, float]:
        """Return how well the stand-in kept time."""
        clock: dict[str, float] = self.standin.state()["clock"]
        return clock

    def close(self) -> None:
        """End the process. May be repeated."""
        self.standin.close()


def _cell(setup: Setup) -> dict[str, Any]:
    stream_hz = setup.stream_hz or setup.personality.stream_hz
    usual, patience = UrConfig(host=setup.host), setup.patience
    ur = {
        "late_periods": usual.late_periods * patience,
        "max_state_age_s": min(usual.max_state_age_s * patience, 1.0),
        "watchdog_hz": max(usual.watchdog_hz / patience, 2.0),
    }
    cell: dict[str, Any] = {
        "robot": setup.robot.model_dump() | {"backend": "ur"},
        "ur": {"host": setup.host, "rtde_rate_hz": stream_hz or usual.rtde_rate_hz} | ur,
    }
    if setup.objects:
        cell["tracker"] = {"host": setup.host, "port": TRACKER_PORT}
    return cell


def _settings(setup: Setup) -> dict[str, Any]:
    settings: dict[str, Any] = {"robot": setup.robot, **setup.personality.settings()}
    if setup.objects:
        settings["objects"] = objects_on_table(setup.objects)
        settings["tracker"] = f"{setup.host}:{TRACKER_PORT}"
    if setup.faults is not None:
        settings["faults"] = load_faults(setup.faults)
    return settings


LABS.register("ur", UrLab)
