"""The vendor's part of the worker: the connection to one controller."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from td3robot.robots.driver.shared_memory import WorkerState

# At rest, an arm and what holds it are this close to each other [rad].
REST_RAD = 0.02


class StoppedError(Exception):
    """The arm no longer follows.

    Attributes:
        reason: The reason, as one clause for a message.
        connected: Whether the connection to the controller can still be used.
    """

    def __init__(self, reason: str, connected: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.connected = reason, connected


def connection_lost(said: str = "") -> StoppedError:
    """Return the fault of a broken connection, with what the vendor's client said about it, if anything."""
    what = f" ({' '.join(said.split())})" if said else ""
    return StoppedError(f"the connection to the controller was lost{what}; see to network and controller", False)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How the worker streams; every driver's configuration supplies these.

    Attributes:
        rate_hz: How often targets are streamed and states are published.
        period_s: The control period.
        control: Whether the arm will be moved; if not, states are read and nothing else.
        recover_after_s: Wait this long and clear the controller's errors when connecting; None clears nothing.
        late_periods: Without a new target for this many control periods, the arm is stopped.
        stop_deceleration_rad_s2: Deceleration of a controlled stop, for the fastest joint.
        realtime_priority: Priority on SCHED_FIFO, if the system allows it; 0 leaves the scheduler alone.
        joint_names: (n,) for messages.
        lower, upper, velocity: (n,) joint limits, which no true state is far beyond [rad, rad/s].
        max_tcp_speed_m_s: Limit that the measured tool should stay below.
        max_contact_force_n: Estimated force at the tool above which the arm is stopped.
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
    max_contact_force_n: float = inf


class ArmLink(ABC):
    """The worker loop's connection to one controller. It exists in the worker process alone.

    Any method may raise :class:`StoppedError`; the worker then brakes as well as it still can, and latches the reason.
    The errors in ``client_errors`` may come out of any method, too, and mean that the connection is lost.

    Args:
        settings: The vendor's configuration, as plain values.
        stream: How the worker streams.
    """

    first: ClassVar[WorkerState]  # a state before there is any, for the kind and the number of joints
    client_errors: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self, settings: dict[str, Any], stream: StreamSettings) -> None:
        self._settings, self._stream = settings, stream

    @abstractmethod
    def connect(self) -> dict[str, Any]:
        """Check the robot and get ready to stream.

        Returns:
            What the robot reports about itself; ``q`` is the posture (n,) [rad] in which it rests.

        Raises:
            StoppedError: It is not there, is another robot, or is not ready to be moved.
            ImportError: The vendor's client is not installed.
        """

    @abstractmethod
    def observe(self, now: float, before: Any) -> dict[str, Any]:
        """Return the fields of a new state received at a time [s], or none if nothing new arrived."""

    @abstractmethod
    def require_healthy(self, state: Any, now: float) -> None:
        """Raise if the arm is stopped, or its state is no longer known."""

    def require_recent(self, state: Any, now: float) -> None:
        """Raise if the controller's clock stands still: the stream stopped, or repeats itself."""
        age, limit = now - state.stamp, self._settings["max_state_age_s"]
        if age > limit:
            raise StoppedError(
                f"the controller's clock has not moved for {age:.2f} s (limit {limit:g} s)", connected=False
            )

    def require_streamable(self, state: Any) -> None:  # noqa: B027  # most have nothing to add
        """Raise if the arm must not be driven any further; called while targets are streamed."""

    @abstractmethod
    def servo(self, q: list[float]) -> None:
        """Stream one target q (n,) [rad]."""

    def grip(self, closed: float) -> None:  # noqa: B027  # where the gripper has a connection of its own
        """Move the gripper to a closed fraction; below 0, leave it alone."""

    def resting(self, state: Any) -> tuple[float, ...]:
        """Return the posture (n,) [rad] from which a motion begins: where the arm is."""
        q: tuple[float, ...] = state.q
        return q

    def follows(self, state: Any) -> bool:
        """Return whether targets still reach the arm, so that it can be braked by them."""
        return True

    def feed_watchdog(self, state: Any) -> None:  # noqa: B027  # where no watchdog has to be fed
        """Send the controller a sign of life; called every tick while nothing is streamed."""

    def may_end(self, speed: float) -> bool:
        """Return whether servoing may end while the fastest joint has this speed [rad/s]."""
        return True

    def servo_stop(self) -> None:  # noqa: B027  # where a motion stays open
        """End servoing; the controller brings the arm to rest and holds it."""

    def waited_s(self, state: Any, now: float) -> float:
        """Return for how long of the time since the last call targets had to wait for the controller [s]."""
        return 0.0

    @abstractmethod
    def leave(self) -> None:
        """End our program on the controller; the arm stays where it is, held by the controller."""


def require_rest(q: Sequence[float], held: Sequence[float], where: str, holds: str) -> None:
    """Raise if an arm at rest is elsewhere than it should be [rad]: a motion would begin with a jump."""
    away = max(abs(a - b) for a, b in zip(q, held, strict=True))
    if not away <= REST_RAD:
        raise StoppedError(
            f"the {where} is {away:.3f} rad away from where {holds} (limit {REST_RAD:g} rad): a motion from there "
            "would begin with a jump"
        )


def quantiles_ms(name: str, seconds: Iterable[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum of durations as ``<name>_p50_ms`` and so on; empty without any."""
    ordered = sorted(seconds)  # plain Python: a worker imports no NumPy
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0} if ordered else {}
    return {
        f"{name}_{label}_ms": 1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        for label, share in shares.items()
    }
