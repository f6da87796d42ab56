"""Labs: a simulated controller in its own process, and what a person in the lab would do and see.

A rehearsal drives the controller with the same driver as the real one; everything else goes through the
:class:`SimulatorSession`. Each backend has a module here, named like its ``robot.backend``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from td3robot.config import RobotConfig
from td3robot.errors import ConfigError
from td3robot.registry import Registry
from td3robot.robots.cells import CellConfig
from td3robot.simulators.cell_camera import Eyes
from td3robot.simulators.presets import NOMINAL, Preset
from td3robot.state import ObjectModel, Pose

if TYPE_CHECKING:
    from td3robot.simulators.camera_process import CellCamera
    from td3robot.simulators.process import StandstillMonitor

SESSIONS: Registry[type["SimulatorSession"]] = Registry("backend", "td3robot.simulators.sessions")


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """What to simulate, and how to reach it.

    Attributes:
        robot: As in a run: arm, gripper, table.
        objects: The objects on the table.
        host: Address that the simulated controller listens on.
        faults: A file of faults with their times, or None.
        stream_hz: How often targets are streamed and states reported; None is the driver's default.
        timeout_scale: Factor on how late targets and states may be before the driver reports a fault, for busy
            computers.
        preset: What makes this cell differ from the one that the training simulation assumes.
        eyes: A simulated camera to see the objects with; None has the simulator tell their poses.
    """

    robot: RobotConfig
    objects: tuple[ObjectModel, ...] = ()
    host: str = "127.0.0.2"
    faults: Path | None = None
    stream_hz: int | None = None
    timeout_scale: float = 1.0
    preset: Preset = NOMINAL
    eyes: Eyes | None = None


class SimulatorSession(ABC):
    """A running stand-in with its table and its tracker, as a context manager. It dies with this process.

    Args of every implementation: one :class:`SimulatorConfig`. The constructor returns when the process serves.

    Raises:
        RobotError: It did not start, or something else answers.
        ConfigError: The configuration is not possible.

    Attributes:
        arms: The arms that it can stand in for, as in ``robot.arm``.
        ports: The TCP ports that it listens on.
        cell_type: The type of its cell, which knows what packages its driver needs.
        cell: How to reach and drive the stand-in; with a tracker if there are objects.
        camera: The simulated camera that its tracker sees with, or None.
    """

    arms: ClassVar[Sequence[str]]
    ports: ClassVar[Sequence[int]]
    cell_type: ClassVar[type[CellConfig]]
    cell: CellConfig
    camera: "CellCamera | None" = None

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config

    @property
    def settled_s(self) -> float:
        """Time after which no pose from before an object was moved arrives any more [s]."""
        return self.config.preset.cell_model.camera.settled_s if self.camera is None else self.camera.settled_s

    def place(self, poses: Mapping[str, Pose]) -> None:
        """Place objects at poses in the base frame, at rest, all at once: one may be where another was.

        Raises:
            ConfigError: There are no such objects.
        """
        if poses:
            raise ConfigError(f"the stand-in has no object {next(iter(poses))!r} to place")

    def begin_episode(self, number: int) -> None:  # noqa: B027  # where no fault waits for one
        """Announce an episode, so that the faults that wait for it begin, if there are any."""

    def clear_faults(self) -> None:  # noqa: B027  # where recovering does it all
        """Do what an operator does at the cell after a fault, up to saying that the robot may recover.

        Faults end, buttons are released, settings are restored; the arm stays where it is. What the driver's
        ``recover`` clears (a protective stop, a reflex) is left to it.
        """

    def gripper_ready(self) -> bool:
        """Whether the gripper needs no activation."""
        return True

    def standstill_monitor(self) -> "StandstillMonitor":
        """Return a monitor of the arm's speed, not started yet.

        Raises:
            ConfigError: The stand-in takes one client, which drives it.
        """
        raise ConfigError("the stand-in takes one client, so that nothing can watch the arm from outside")

    @abstractmethod
    def reset_wire(self) -> None:
        """Reset the extremes of :meth:`wire`."""

    @abstractmethod
    def wire(self) -> dict[str, Any]:
        """Return the extremes that the controller saw.

        These are mappings ``targets`` and ``measured``, each with ``tcp_speed_m_s``, ``joint_speed_rad_s`` and
        ``joint_acceleration_rad_s2``.
        """

    @abstractmethod
    def clock(self) -> dict[str, float]:
        """Return how well the stand-in kept time: ``late_p50_s``, ``late_p99_s``, ``late_worst_s``, ``lost_s``."""

    @abstractmethod
    def close(self) -> None:
        """End the process. May be repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def session_of(arm: str) -> type[SimulatorSession]:
    """Return the lab that can stand in for an arm.

    Raises:
        ConfigError: There is none.
    """
    for lab in SESSIONS.values():
        if arm in lab.arms:
            return lab
    known = ", ".join(sorted(arm for lab in SESSIONS.values() for arm in lab.arms))
    raise ConfigError(f"there is no stand-in for the arm {arm!r} (choices: {known})")


def start_session(config: SimulatorConfig) -> SimulatorSession:
    """Start the stand-in of an arm.

    Raises:
        ConfigError: There is none.
        RobotError: It did not start.
    """
    return session_of(config.robot.arm)(config)
