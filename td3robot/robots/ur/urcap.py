"""A Robotiq gripper (2F-85, 2F-140, Hand-E) through the text socket of its URCap on a UR controller.

The protocol: lines ``GET NAME`` answered by ``NAME value``, and ``SET NAME value NAME value ...`` answered by ``ack``;
``?`` as a value means that the controller cannot reach the gripper. Names used here: ACT (activate), STA (3 when
active), POS (position, also the request), SPE, FOR, GTO (go), OBJ (what stopped it), FLT (fault code).
"""

import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

from td3robot.errors import ConfigError, RobotError
from td3robot.robots.cells.ur import GripperConfig
from td3robot.robots.driver.fingers import DRIVEN_S, FingerWatch
from td3robot.robots.driver.link import quantiles_ms
from td3robot.robots.grippers.model import GripperModel
from td3robot.robots.ur.connection import LineReader

ACTIVE = 3
STOPPED_OPENING, STOPPED_CLOSING = 1, 2
# Some URCaps end their answers without a newline: after this long, an answer is complete [s].
LINE_PAUSE_S = 0.05
# The most bytes of one answer, and of unrequested input that is dropped.
LONGEST, LONGEST_DRAIN = 256, 1 << 16
# The highest value of a register, if it is not that of a byte.
HIGHEST = {"ACT": 1, "GTO": 1, "STA": 3, "OBJ": 3}
# How long answers may take before the first motion [s].
CONNECT_S = 2.0
# Activation closes and opens the fingers once [s].
ACTIVATION_S = 8.0
# Status and fault code are polled once per this many polls of the position.
STATUS_EVERY = 10
# Fingers at rest do not move away from what they were told by more than this [counts]: the drive is self-locking.
MOVED_COUNTS = 8


@dataclass(frozen=True, slots=True)
class FingerState:
    """The gripper's last report.

    Attributes:
        count: Position count.
        closed: Closed fraction after calibration, 0 to 1; drivers are linear in it.
        obj: State of the fingers: 0 moving, 1 stopped by something while opening, 2 while closing, 3 arrived.
        stamp: When the report was received, on this computer's monotonic clock [s].
    """

    count: int
    closed: float
    obj: int
    stamp: float

    @property
    def holds(self) -> bool:
        """Whether something is held between the fingers, or spread by them."""
        return self.obj in (STOPPED_OPENING, STOPPED_CLOSING)


class UrCapSocket:
    """Requests and answers, one at a time."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._where = f"gripper at {host}, port {port}"
        self.timeout_s = timeout_s
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise RobotError(
                f"the {self._where} cannot be reached ({error.strerror or error}); is the Robotiq URCap installed and "
                "the gripper's port right?"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = LineReader(self._socket, LONGEST, LINE_PAUSE_S)

    def get(self, name: str) -> int:
        """Return a value from the gripper.

        Raises:
            RobotError: The gripper is silent, or answers something else.
        """
        answer = self._ask(f"GET {name}").split()
        if len(answer) != 2 or answer[0] != name:
            raise RobotError(f"the {self._where} answered {' '.join(answer)!r} when asked for {name}")
        if not answer[1].isdigit():
            raise RobotError(
                f"the {self._where} has no value for {name} ({answer[1]!r}): the controller does not reach the "
                "gripper; check its cable and power"
            )
        highest = HIGHEST.get(name, 255)
        if len(answer[1]) > 3 or int(answer[1]) > highest:
            raise RobotError(
                f"the {self._where} reports {answer[1][:20]} for {name}, which goes from 0 to {highest}: something "
                "else answers there, or the line is disturbed"
            )
        return int(answer[1])

    def set(self, **values: int) -> None:
        """Set several values in one request, which the gripper applies as a whole.

        Raises:
            RobotError: The gripper is silent, or did not accept them.
        """
        request = "SET " + " ".join(f"{name} {value}" for name, value in values.items())
        answer = self._ask(request)
        if answer != "ack":
            raise RobotError(f"the {self._where} answered {answer!r} to {request!r}")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, request: str) -> str:
        try:
            self._drain()
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(request.encode("ascii") + b"\n")
            return self._lines.read(self.timeout_s).decode("ascii")
        except TimeoutError:
            raise RobotError(f"the {self._where} did not answer {request!r} within {self.timeout_s:g} s") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RobotError(f"the connection to the {self._where} failed: {error}") from None

    def _drain(self) -> None:
        """Drop unrequested input: the late answer to a request that timed out."""
        self._lines.clear()
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            dropped = 0
            while data := self._socket.recv(4096):
                dropped += len(data)
                if dropped > LONGEST_DRAIN:
                    raise ConnectionError("it keeps sending unrequested data")


class RobotiqGripper:
    """The gripper, polled and commanded in its own thread; calls exchange the latest values without waiting.

    Args:
        host: The UR controller.
        config: How it is driven.
        model: The gripper model.
        recovery: The command that recovers the robot, for error messages.

    Attributes:
        open_count, closed_count: Position counts that it reports when open, and when closed on nothing.

    Raises:
        ConfigError: The gripper has no counts, so it is not one of Robotiq's.
    """

    def __init__(
        self, host: str, config: GripperConfig, model: GripperModel, recovery: str = "td3robot recover --robot CELL"
    ) -> None:
        self.host, self.config, self._recovery = host, config, recovery
        if model.counts is None:
            raise ConfigError(f"a {model.name} has no position counts: it is not driven through Robotiq's URCap")
        self.open_count, self.closed_count = config.calibrated(model.counts)
        self.fault: str | None = None
        self._wanted: int | None = None
        self._commanded_at = 0.0
        self._commanding = threading.Lock()
        self._state: FingerState | None = None
        self._answer_times: deque[float] = deque(maxlen=10_000)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """Open the socket and start polling; nothing moves.

        Raises:
            RobotError: The gripper does not answer, or is not active.
        """
        if self._thread is not None:
            return
        link = self._open()
        try:
            self._require_active(link)
            self._poll(link)
        except RobotError:
            link.close()
            raise
        link.timeout_s = self.config.answer_timeout_s
        self.fault, self._wanted = None, None
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, args=(link,), name="robotiq", daemon=True)
        self._thread.start()

    def activate(self) -> None:
        """Activate the gripper, which closes and opens its fingers; only while it is not connected.

        Raises:
            RobotError: It is in use, or did not become active in time.
        """
        if self._thread is not None:
            raise RobotError("the gripper is in use; close the robot before activating it")
        link = self._open()
        try:
            link.set(ACT=0, ATR=0)
            sleep(0.1)
            link.set(ACT=1)
            end = monotonic() + ACTIVATION_S
            while not (link.get("ACT") == 1 and link.get("STA") == ACTIVE):
                if monotonic() > end:
                    raise RobotError(f"the gripper did not become active within {ACTIVATION_S:g} s; see the pendant")
                sleep(0.05)
        finally:
            link.close()

    def command(self, closed: float) -> None:
        """Move to a closed fraction in [0, 1].

        It is sent once, and again if its count changes, or if another program moved the fingers in between. Fingers
        that another program moves while commands keep coming are a fault.
        """
        with self._commanding:
            self._wanted = round(self.open_count + closed * (self.closed_count - self.open_count))
            self._commanded_at = monotonic()

    def state(self) -> FingerState:
        """Return the last report.

        Raises:
            RobotError: The gripper is not connected.
        """
        if self._state is None:
            raise RobotError("the gripper is not connected; call connect() first")
        return self._state

    def figures(self) -> dict[str, float]:
        """Return quantiles of the response times [ms]."""
        return quantiles_ms("gripper_answer", list(self._answer_times))

    def close(self) -> None:
        """Stop polling; the gripper keeps what it holds. May be repeated."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _open(self) -> UrCapSocket:
        """Open the socket with a long timeout: nothing moves yet."""
        return UrCapSocket(self.host, self.config.port, max(CONNECT_S, self.config.answer_timeout_s))

    def _run(self, link: UrCapSocket) -> None:
        sent, polls, watch = None, 0, FingerWatch(MOVED_COUNTS)
        try:
            while not self._closing.is_set():
                begin = monotonic()
                wanted = self._wanted
                if wanted is not None and wanted != sent:
                    link.set(POS=wanted, SPE=self.config.speed, FOR=self.config.force, GTO=1)
                    sent = wanted
                    watch.told(sent, monotonic())
                self._poll(link)
                state = self.state()
                if (rest := watch.moved_from(state.count, state.stamp)) is not None:
                    self._moved_by_another(rest, state)
                    sent = None
                    watch.told(None, state.stamp)
                polls += 1
                if polls % STATUS_EVERY == 0:
                    self._require_active(link)
                self._closing.wait(max(0.0, begin + 1.0 / self.config.poll_hz - monotonic()))
        except RobotError as error:
            self.fault = str(error)
        finally:
            with suppress(OSError):
                link.close()

    def _moved_by_another(self, rest: float, state: FingerState) -> None:
        """Forget the last command, so that the same one is sent again; while commands keep coming, it is a fault."""
        with self._commanding:
            if state.stamp - self._commanded_at < DRIVEN_S:
                raise RobotError(
                    f"the gripper's fingers went from count {rest:g} to {state.count} although td3robot did not move "
                    "them: another program drives the gripper, or its coupling slipped; end that program, and look at "
                    "the gripper"
                )
            self._wanted = None

    def _poll(self, link: UrCapSocket) -> None:
        begin = monotonic()
        count = link.get("POS")
        now = monotonic()
        self._answer_times.append(now - begin)
        closed = min(max((count - self.open_count) / (self.closed_count - self.open_count), 0.0), 1.0)
        self._state = FingerState(count, closed, link.get("OBJ"), now)

    def _require_active(self, link: UrCapSocket) -> None:
        if (status := link.get("STA")) != ACTIVE:
            raise RobotError(
                f"the gripper is not active (STA {status}, wanted {ACTIVE}): activate it at the pendant, or with "
                f"{self._recovery} --activate-gripper, which closes and opens its fingers"
            )
        if (fault := link.get("FLT")) != 0:
            raise RobotError(f"the gripper reports fault code {fault}; see its manual, then activate it again")
