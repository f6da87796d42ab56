"""What a vendor adds to the worker: the connection to one controller."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from td3robot.robots.driver.shared_memory import WorkerState


class StoppedError(Exception):
    """The arm no longer follows.

    Attributes:
        reason: Why, as one clause for a message.
        connected: Whether the connection to the controller can still be used.
    """

    def __init__(self, reason: str, connected: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.connected = reason, connected


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How the worker streams; every driver's configuration gives these.

    Attributes:
        rate_hz: How often targets are streamed and states are published.
        period_s: The control period.
        control: Whether the arm is to be moved; without it, states are read and nothing else.
        recover_after_s: Wait so long and clear the controller's errors when connecting; None clears nothing.
        late_periods: Without a new target for so many control periods, the arm is stopped.
        stop_deceleration_rad_s2: Of a controlled stop, for the fastest joint.
        realtime_priority: On SCHED_FIFO, where the system allows it; 0 leaves the scheduler alone.
        joint_names: (n,) for messages.
        lower, upper, velocity: (n,) limits of the joints, which no true state is far beyond [rad, rad/s].
        max_tcp_speed_m_s: What the measured tool is to stay below.
    """

    rate_hz: float
    period_s: float
    control: bool
    recover_after_s: float | None
    late_periods: float
    stop_deceleration_rad_s2: float
    realtime_priority: int
    joint_names: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    velocity: tuple[float, ...]
    max_tcp_speed_m_s: float = inf


class ArmLink(ABC):
    """The connection to one controller, as the worker's loop uses it. It lives in the worker process alone.

    Any method may raise :class:`StoppedError`; the worker then brakes as far as it still can, and latches the reason.

    Args:
        settings: The vendor's configuration, as plain values.
        stream: How the worker streams.
    """

    first: ClassVar[WorkerState]  # a state before there is any, for the kind and the number of joints

    def __init__(self, settings: dict[str, Any], stream: StreamSettings) -> None:
        self._settings, self._stream = settings, stream

    @abstractmethod
    def connect(self) -> dict[str, Any]:
        """Check the robot and be ready to stream.

        Returns:
            What the robot says of itself, for reports; ``q`` is the posture (n,) [rad] that it rests in.

        Raises:
            StoppedError: It is not there, not this robot, or not ready to be moved.
            ImportError: The vendor's client is not installed.
        """

    @abstractmethod
    def observe(self, now: float, before: Any) -> dict[str, Any]:
        """Return the fields of a new state received at a time [s], or none where nothing new arrived."""

    @abstractmethod
    def require_healthy(self, state: Any, now: float) -> None:
        """Raise where the arm is stopped, or its state is no longer known."""

    def require_streamable(self, state: Any) -> None:  # noqa: B027  # most have nothing to add
        """Raise where the arm must not be driven on; asked while targets are streamed."""

    @abstractmethod
    def servo(self, q: list[float]) -> None:
        """Stream one target q (n,) [rad]."""

    def grip(self, closed: float) -> None:  # noqa: B027  # where the gripper has a connection of its own
        """Send the gripper to a closed fraction; below 0, leave it alone."""

    def resting(self, state: Any) -> tuple[float, ...]:
        """Return the posture (n,) [rad] that a motion begins in: where the arm is."""
        q: tuple[float, ...] = state.q
        return q

    def follows(self, state: Any) -> bool:
        """Return whether targets still reach the arm, so that it can be braked by them."""
        return True

    def kick(self, state: Any) -> None:  # noqa: B027  # where no watchdog has to be fed
        """Tell the controller that somebody is here; called every tick while nothing is streamed."""

    def may_end(self, speed: float) -> bool:
        """Return whether servoing may be ended at a speed of the fastest joint [rad/s]."""
        return True

    def servo_stop(self) -> None:  # noqa: B027  # where a motion stays open
        """End servoing; the controller brings the arm to rest and holds it."""

    def waited_s(self, state: Any) -> float:
        """Return by how much the controller's own clock has waited since it was asked last [s]."""
        return 0.0

    @abstractmethod
    def leave(self) -> None:
        """End what runs on the controller; the arm stays where it is, held by the controller."""
