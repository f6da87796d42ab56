"""The stand-in for an FR3 as a child process, in the environment that ``launch/franka_sim.sh`` makes, and its log."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ConfigError, RobotError
from td3robot.processes import ChannelClosedError, ChildProcess, end_process
from td3robot.robots.interface import RobotSpec

# Where that environment is, unless the variable names another interpreter.
VARIABLE, ENVIRONMENT = "TD3ROBOT_FRANKA_SIM", Path(".venv-franka-sim")
START_S, END_S, ANSWER_S = 60.0, 10.0, 5.0


def simulator_python() -> Path:
    """Return the interpreter of franka-sim's environment.

    Raises:
        ConfigError: There is none; says how to make it.
    """
    named = os.environ.get(VARIABLE)
    python = Path(named) if named else ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        raise ConfigError(
            f"there is no {python}, where franka-sim, the stand-in for a Franka, would be: run launch/franka_sim.sh, "
            f"or set {VARIABLE} to the interpreter of its environment"
        )
    return python


def check_log(path: Path) -> dict[str, Any]:
    """Check a log of commands with franka-sim's offline checker; see :func:`serve.check_limits` for the result.

    Raises:
        ConfigError: There is no environment for it.
        RobotError: The check failed.
    """
    child = _start("run_check")
    try:
        child.channel.send(path)
        verdict: dict[str, Any] = child.channel.receive()
    except ChannelClosedError:
        child.process.wait()
        raise RobotError(f"the log {path} could not be checked: {child.last_words()}") from None
    finally:
        child.close()
    return verdict


class FrankaSimulator:
    """A stand-in FR3 on a loopback address, with motion limits enforced. It ends with this process.

    Args:
        host: A 127.x.x.x address.
        **options: Options of ``serve.py``.

    Attributes:
        events: Its events so far, oldest first.

    Raises:
        ConfigError: There is no environment for it.
        RobotError: It did not start.
    """

    def __init__(self, host: str, **options: Any) -> None:
        self.host, self.events = host, list[dict[str, Any]]()
        self._changed = threading.Condition()
        self._child = _start("run_child")
        self._order({"host": host, **options})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._await("ready", 1, START_S):
            said = self._child.last_words() or f"status {self._child.process.poll()}"
            self.close()
            raise RobotError(f"the stand-in for a Franka did not start on {host} ({said})")

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Return all its events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    def reflex(self) -> None:
        """Stop the arm as a contact would."""
        self._order("reflex")

    def open_hand(self) -> None:
        """Open the hand as another program would."""
        self._order("open_hand")

    def flush(self) -> None:
        """Make it write out its log of commands.

        Raises:
            RobotError: It does not answer.
        """
        count = len(self.events_of("flushed")) + 1
        self._order("flush")
        if not self._await("flushed", count, ANSWER_S):
            raise RobotError("the stand-in for a Franka does not answer")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._child.kill()

    def close(self) -> None:
        """Make it write its log and end. May be repeated."""
        self._child.channel.end_sending()
        end_process(self._child.process, END_S)
        self._reader.join()  # it has read the last event
        self._child.close()

    def _order(self, message: Any) -> None:
        try:
            self._child.channel.send(message)
        except ChannelClosedError:
            raise RobotError("the stand-in for a Franka has ended") from None

    def _await(self, kind: str, count: int, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self.events_of(kind)) >= count or self._child.ended, timeout_s)
        return len(self.events_of(kind)) >= count

    def _read(self) -> None:
        try:
            while True:
                event = self._child.channel.receive()
                with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()
        except ChannelClosedError:
            with self._changed:
                self._changed.notify_all()


def _start(entry: str) -> ChildProcess:
    return ChildProcess(
        f"td3robot.simulators.franka.serve:{entry}",
        interpreter=str(simulator_python()),
        ends_itself=True,
        lean=True,
        keep_output=True,
    )


# As ``serve.py`` writes it: monotonic time [s], number of the robot's cycle, mode, commanded and measured angles [rad].
RECORD = np.dtype([("t", "f8"), ("id", "u8"), ("mode", "i8"), ("c", "f8", 7), ("q", "f8", 7)])
CYCLE_S = 1e-3
# A pause of this many cycles begins a new motion.
PAUSE = 50
# Velocities of measured angles, and all accelerations, are taken over this many cycles: a control period's worth would
# hide the effect of 20 Hz targets, and a single cycle's is the generator's jerk.
SPAN = 10


def read_log(path: Path, since_s: float = 0.0) -> NDArray[Any]:
    """Return the records from a monotonic time [s] on."""
    data = np.fromfile(path, dtype=RECORD) if path.is_file() else np.zeros(0, RECORD)
    return data[data["t"] >= since_s]


def motions(data: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the records split where the arm rested."""
    ids = data["id"].astype(np.int64)
    cuts = np.flatnonzero((np.diff(ids) > PAUSE) | (np.diff(ids) <= 0)) + 1
    return [part for part in np.split(data, cuts) if len(part) > 2 * SPAN]


def extremes(data: NDArray[Any], column: str, spec: RobotSpec) -> dict[str, float]:
    """Return the largest tool speed [m/s], joint speed [rad/s] and joint acceleration [rad/s2] of ``c`` or ``q``."""
    tool, speed, acceleration = 0.0, 0.0, 0.0
    for part in motions(data):
        times = CYCLE_S * part["id"].astype(np.float64)[::SPAN]
        q = part[column][::SPAN]
        velocity = np.diff(q, axis=0) / np.diff(times)[:, None]
        change = np.diff(velocity, axis=0) / np.diff(times)[1:, None]
        points = spec.arm.chain.tools(q, spec.tcp_offset_m)
        speeds = np.linalg.norm(np.diff(points, axis=0), axis=1) / np.diff(times)
        tool = max(tool, float(speeds.max()))
        speed = max(speed, float(np.abs(velocity).max()))
        acceleration = max(acceleration, float(np.abs(change).max(initial=0.0)))
    return {"tcp_speed_m_s": tool, "joint_speed_rad_s": speed, "joint_acceleration_rad_s2": acceleration}


def timekeeping(data: NDArray[Any]) -> dict[str, float]:
    """Return how late cycles were by this computer's clock, and how much time was lost in total [s]."""
    late, lost = [np.zeros(1)], 0.0
    for part in motions(data):
        cycles = np.diff(part["id"].astype(np.int64))
        passed = np.diff(part["t"])
        late.append(np.maximum(passed - CYCLE_S * cycles, 0.0))
        lost += max(0.0, float(part["t"][-1] - part["t"][0] - CYCLE_S * cycles.sum()))
    every = np.concatenate(late)
    p50, p99 = (float(value) for value in np.percentile(every, [50, 99]))
    return {"late_p50_s": p50, "late_p99_s": p99, "late_worst_s": float(every.max()), "lost_s": lost}
