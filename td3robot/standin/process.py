"""Starts a stand-in as a child of this process, proves that it is ours, and talks to its lab."""

import json
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Self

from td3robot.errors import RobotError
from td3robot.standin.loopback import free_host
from td3robot.standin.settings import DASHBOARD_PORT, PORTS, StandinConfig, check_standin_config
from td3robot.subprocesses import start_python

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 5.0


class Standin:
    """A running stand-in, as a context manager. It dies with this process, however that ends.

    Attributes:
        config: Its settings.
        process: The child.
    """

    def __init__(self, config: StandinConfig, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        self.config, self.process, self._log = config, process, log
        self._lab: socket.socket | None = None
        self._buffer = b""

    @property
    def host(self) -> str:
        """Address of the controller's ports."""
        return self.config.host

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request to the lab and return the answer; :mod:`td3robot.standin.ports.lab` lists the requests.

        Raises:
            RobotError: It refused, or does not answer.
        """
        try:
            if self._lab is None:
                self._lab = socket.create_connection((self.host, self.config.lab_port), ANSWER_TIMEOUT_S)
            self._lab.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._read_line())
        except OSError as error:
            self._lab = None
            raise RobotError(f"the stand-in on {self.host} does not answer in its lab: {error}") from None
        if not answer.pop("ok"):
            raise RobotError(f"the stand-in's lab refused {request}: {answer['error']}")
        return answer

    def state(self) -> dict[str, Any]:
        """Return the true state: posture, modes, objects, extremes at the wire, and the clock's figures."""
        return self.ask(state=True)

    def place(self, name: str, position_m: Sequence[float], quaternion_wxyz: Sequence[float] = (1, 0, 0, 0)) -> None:
        """Place an object at a pose, at rest."""
        self.ask(place={name: {"position_m": list(position_m), "quaternion_wxyz": list(quaternion_wxyz)}})

    def fault(self, kind: str, **values: Any) -> None:
        """Request a fault; :mod:`td3robot.standin.fault_kinds` lists them."""
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
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Stop it and wait for its end. May be repeated."""
        if self._lab is not None:
            self._lab.close()
            self._lab = None
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        if not self._log.closed:
            self._log.close()

    def output(self) -> str:
        """Return what it wrote to standard error."""
        self._log.flush()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_line(self) -> bytes:
        assert self._lab is not None
        while b"\n" not in self._buffer:
            data = self._lab.recv(1 << 16)
            if not data:
                raise ConnectionError("it closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def start_standin(host: str | None = None, **values: Any) -> Standin:
    """Start a stand-in on its own address, and return when it serves.

    Args:
        host: Loopback address; two stand-ins cannot share one. None takes a free one.
        **values: Other fields of :class:`StandinConfig`.

    Raises:
        RobotError: It did not start, or something else answers at the address.
    """
    values.setdefault("token", secrets.token_hex(16))
    config = check_standin_config({"host": host or free_host(PORTS), **values})
    log = tempfile.TemporaryFile()  # noqa: SIM115, closed with the stand-in
    process = start_python(
        ["-m", "td3robot.standin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    standin = Standin(config, process, log)
    try:
        assert process.stdin is not None
        process.stdin.write(config.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        _await_ready(standin)
        _prove(standin)
    except BaseException:
        standin.close()
        raise
    return standin


def _await_ready(standin: Standin) -> None:
    assert standin.process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    readable, _, _ = select.select([standin.process.stdout], [], [], START_TIMEOUT_S)
    if readable and standin.process.stdout.readline().strip():
        return
    if time.monotonic() >= deadline:
        raise RobotError(f"the stand-in on {standin.host} did not start within {START_TIMEOUT_S:g} s")
    standin.process.wait()
    lines = standin.output().strip().splitlines() or ["it said nothing"]
    raise RobotError(f"the stand-in on {standin.host} did not start: {lines[-1]}")


def _prove(standin: Standin) -> None:
    """Refuse anything that is not the child that was just started."""
    expected = standin.config.serial_number
    with socket.create_connection((standin.host, DASHBOARD_PORT), ANSWER_TIMEOUT_S) as dashboard:
        stream = dashboard.makefile("rw", encoding="utf-8", newline="\n")
        stream.readline()
        stream.write("get serial number\n")
        stream.flush()
        found = stream.readline().strip()
    if found != expected or standin.ask(state=True)["token"] != standin.config.token:
        raise RobotError(
            f"the controller on {standin.host} has serial number {found}, and the stand-in that was started has "
            f"{expected}; something else listens there, and nothing was moved"
        )
