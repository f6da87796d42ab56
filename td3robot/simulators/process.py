"""Starts a simulated UR controller as a child of this process, proves that it is ours, and talks to its lab."""

import json
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from td3robot.errors import RobotError
from td3robot.geometry import quaternion
from td3robot.processes import ChannelClosedError, ChildProcess
from td3robot.robots.ur.generations import DASHBOARD_PORT
from td3robot.simulators.server import READY, run_child
from td3robot.simulators.settings import PORTS, ControllerConfig, check_controller_config
from td3robot.state import Pose

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S, END_TIMEOUT_S = 5.0, 5.0
# How often the lab is polled [s]; it answers once per 2 ms period.
POLL_INTERVAL_S = 0.01
# The arm is at rest if every joint is slower than this [rad/s].
AT_REST_RAD_S = 0.01


class LabClient:
    """A connection to a stand-in's lab, which is opened when it is first used.

    Args:
        host: Address of the stand-in.
        port: Port of its lab.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self._lab_port = host, port
        self._lab: socket.socket | None = None
        self._buffer = b""

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request to the lab and return the answer; :mod:`td3robot.simulators.ports.lab` lists the requests.

        Raises:
            RobotError: It refused, or does not answer.
        """
        try:
            if self._lab is None:
                self._lab = socket.create_connection((self.host, self._lab_port), ANSWER_TIMEOUT_S)
            self._lab.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._read_line())
        except OSError as error:
            self._lab = None
            raise RobotError(f"the stand-in on {self.host} does not answer in its lab: {error}") from None
        if not answer.pop("ok"):
            raise RobotError(f"the stand-in's lab refused {request}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Close the connection. May be repeated."""
        if self._lab is not None:
            self._lab.close()
            self._lab = None

    def _read_line(self) -> bytes:
        assert self._lab is not None
        while b"\n" not in self._buffer:
            data = self._lab.recv(1 << 16)
            if not data:
                raise ConnectionError("it closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class UrSimulator(LabClient):
    """A running stand-in, as a context manager. It dies with this process, however that ends.

    Attributes:
        config: Its settings.
        child: The process.
    """

    def __init__(self, config: ControllerConfig, child: ChildProcess) -> None:
        super().__init__(config.host, config.lab_port)
        self.config, self.child = config, child

    def state(self) -> dict[str, Any]:
        """Return the true state: posture, modes, objects, extremes at the wire, and the clock's figures."""
        return self.ask(state=True)

    def place(self, poses: Mapping[str, Pose]) -> None:
        """Place objects at poses in the base frame, at rest, all at once."""
        self.ask(
            place={
                name: {"position_m": pose.position.tolist(), "quaternion_wxyz": quaternion(pose.rotation).tolist()}
                for name, pose in poses.items()
            }
        )

    def fault(self, kind: str, **values: Any) -> None:
        """Request a fault; :mod:`td3robot.simulators.faults` lists them."""
        self.ask(fault={"kind": kind, **values})

    def begin_episode(self, number: int) -> None:
        """Announce an episode, so that its faults begin."""
        self.ask(episode=number)

    def emergency_stop(self, pressed: bool = True) -> None:
        """Press the emergency stop, or release it."""
        self.ask(emergency_stop=pressed)

    def reset(self, q: Sequence[float] | None = None) -> None:
        """Place the arm at q (by default, at home), with all stops cleared and faults ended."""
        self.ask(reset=True if q is None else {"q": list(q)})

    def record(self) -> list[list[float]]:
        """Return the servoJ targets received since the last call: controller time [s], then six angles [rad]."""
        record: list[list[float]] = []
        left = 1
        while left:
            answer = self.ask(record=True)
            record += answer["record"]
            left = answer["left"]
        return record

    def log(self) -> list[str]:
        """Return the controller's log, oldest entry first."""
        return [text for _, text in self.ask(log=True)["log"]]

    def kill(self) -> None:
        """Kill it at once, as if its cable were pulled."""
        self.child.kill()

    def close(self) -> None:
        """Stop it and wait for its end. May be repeated."""
        super().close()
        self.child.close(END_TIMEOUT_S)

    def output(self) -> str:
        """Return what it wrote to standard error."""
        return self.child.output()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_ur_simulator(host: str | None = None, **values: Any) -> UrSimulator:
    """Start a stand-in on its own address, and return when it serves.

    Args:
        host: Loopback address; two stand-ins cannot share one. None takes a free one.
        **values: Other fields of :class:`ControllerConfig`.

    Raises:
        RobotError: It did not start, or something else answers at the address.
    """
    values.setdefault("token", secrets.token_hex(16))
    config = check_controller_config({"host": host or free_host(PORTS), **values})
    simulator = UrSimulator(config, ChildProcess(run_child, ends_itself=True, keep_output=True))
    try:
        _await_ready(simulator)
        _prove(simulator)
    except BaseException:
        simulator.close()
        raise
    return simulator


def _await_ready(simulator: UrSimulator) -> None:
    channel = simulator.child.channel
    try:
        channel.send(simulator.config)
        if not channel.poll(START_TIMEOUT_S):
            raise RobotError(f"the stand-in on {simulator.host} did not start within {START_TIMEOUT_S:g} s")
        answer = channel.receive()
    except ChannelClosedError:
        simulator.child.process.wait()
        answer = simulator.child.last_words() or "it said nothing"
    if answer != READY:
        raise RobotError(f"the stand-in on {simulator.host} did not start: {answer}")


def _prove(simulator: UrSimulator) -> None:
    """Refuse anything that is not the child that was just started."""
    expected = simulator.config.serial_number
    try:
        with socket.create_connection((simulator.host, DASHBOARD_PORT), ANSWER_TIMEOUT_S) as dashboard:
            stream = dashboard.makefile("rw", encoding="utf-8", newline="\n")
            stream.readline()
            stream.write("get serial number\n")
            stream.flush()
            found = stream.readline().strip()
    except OSError as error:
        raise RobotError(
            f"the stand-in on {simulator.host} did not answer on port {DASHBOARD_PORT} within {ANSWER_TIMEOUT_S:g} s "
            f"({error}); is this computer busy? Try again"
        ) from None
    if found != expected or simulator.ask(state=True)["token"] != simulator.config.token:
        raise RobotError(
            f"the controller on {simulator.host} has serial number {found}, and the stand-in that was started has "
            f"{expected}; something else listens there, and nothing was moved"
        )


def free_host(ports: Sequence[int]) -> str:
    """Return a loopback address at which nothing listens on some ports; programs that start together differ.

    Raises:
        RobotError: All of them are taken.
    """
    for number in secrets.SystemRandom().sample(range(2, 255), 253):
        host = f"127.0.0.{number}"
        if all(_is_free(host, port) for port in ports):
            return host
    raise RobotError(f"no address from 127.0.0.2 to 127.0.0.254 has its ports {', '.join(map(str, ports))} free")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class StandstillMonitor(threading.Thread):
    """Sample the arm's speed over a separate connection to the lab, from ``start`` to ``finish``."""

    def __init__(self, simulator: UrSimulator) -> None:
        super().__init__(name="rest-watch", daemon=True)
        self._address = (simulator.host, simulator.config.lab_port)
        self._ending = threading.Event()
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        """Sample until finished, or until the lab stops answering."""
        try:
            with socket.create_connection(self._address, 2.0) as lab, lab.makefile("r") as answers:
                while not self._ending.wait(POLL_INTERVAL_S):
                    lab.sendall(b'{"state": true}\n')
                    self._samples.append((monotonic(), max(map(abs, json.loads(answers.readline())["dq"]))))
        except (OSError, ValueError):
            return  # the stand-in was killed, as faults do

    def finish(self) -> None:
        """Stop sampling."""
        self._ending.set()
        self.join()

    def moved_before(self, at: float) -> bool:
        """Whether the arm moved in the 0.3 s before a time."""
        return any(at - 0.3 < time <= at and speed > AT_REST_RAD_S for time, speed in self._samples)

    def rest_after(self, at: float) -> float:
        """Return how long after a time the arm last moved [s]; the watch must have run long enough.

        Raises:
            RobotError: There is no sample after that time.
        """
        after = [(time, speed) for time, speed in self._samples if time > at]
        if not after:
            raise RobotError("the stand-in's lab did not answer after the fault")
        moving = [time for time, speed in after if speed > AT_REST_RAD_S]
        return max(moving, default=at) - at
