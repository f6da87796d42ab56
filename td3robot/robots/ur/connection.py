"""Connections to a UR controller: text sockets, its dashboard, and what errors mean. Plain Python, for workers."""

import re
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic

from td3robot.errors import RobotError
from td3robot.robots.ur.generations import DASHBOARD_PORT as PORT

# Parts of ur_rtde 1.6.5's messages, and what the user reads instead.
SENTENCES = (
    (
        "input registers are already in use",
        "another program drives the controller at {host}: its RTDE inputs are taken; end that td3robot, ROS driver "
        "or RTDE client first; if there is none, a fieldbus (EtherNet/IP, PROFINET, MODBUS) or a URCap holds them: "
        "disable it under Installation",
    ),
    (
        "timeout connecting to ur dashboard server|dashboard client deadline expired",
        "the dashboard server at {host}, port 29999, accepts connections and does not answer: close other programs "
        "that use it, or restart the controller",
    ),
    (
        "operation canceled",
        "the {what} of the controller at {host} accepts connections and does not answer in time: close other programs "
        "that use it, check the network, or restart the controller",
    ),
    (
        "data synchronization|unable to start synchronization",
        "the controller at {host} answers at RTDE's port 30004 and sends no states: close other RTDE clients, check "
        "the network's load, then try again",
    ),
    (
        "control program is not running|script is not running|start control script|failed to send rtde|could not send",
        "the controller at {host} did not start the control script: another program runs there, a popup waits at the "
        "pendant, or its real-time client interface (port 30003) is not enabled",
    ),
    (
        "could not connect to|connection refused|connect: ",
        "a port of the controller at {host} refuses connections: enable RTDE (30004), the dashboard server (29999) and "
        "the real-time client interface (30003) under Settings, Security, Services",
    ),
    (
        "end of file|connection reset|broken pipe|connection closed",
        "the controller at {host} closed the connection while it was set up: it restarts, its services are being "
        "changed, or too many clients are connected; end the others and try again",
    ),
    (
        "polyscopeversion::parse|parsing failed|bad lexical cast|codec can't decode",
        "the dashboard at {host} says something that cannot be read: something else than a UR answers there; "
        "check ur.host",
    ),
    (
        "remote control",
        "the robot is in local control: switch it to remote control at the pendant, then try again",
    ),
)
# At most this much of its own words is quoted.
QUOTE_LENGTH = 200


def explain_ur_error(error: BaseException, host: str, what: str) -> str:
    """Return what an error of ur_rtde means, with its own words for those who look them up.

    Args:
        error: The error.
        host: The controller.
        what: The part of the controller concerned: ``dashboard server (port 29999)``.
    """
    said = " ".join(str(error).split())[:QUOTE_LENGTH]
    for pattern, sentence in SENTENCES:
        if re.search(pattern, said.lower()):
            return f"{sentence.format(host=host, what=what)} (ur_rtde: {said})"
    return f"the {what} of the controller at {host} cannot be used: {said or 'ur_rtde gives no reason'}"


def connection_refused_message(host: str, port: int, error: OSError, services: str = "", arm: str = "ARM") -> str:
    """Return a message that nothing listens there, and what to do: on a loopback address, only a stand-in could.

    Args:
        host: Where nothing listens.
        port: The TCP port there.
        error: The error of the connection.
        services: What else to check on a robot.
        arm: The arm that is expected there.
    """
    missing = f"there is no UR controller at {host}, port {port} ({error.strerror or error})"
    if _is_loopback(host):
        return f"{missing}; that is this computer: start a simulated one, td3robot standin {arm} --host {host}"
    return f"{missing}; check ur.host, the cable and the robot's network settings{services}"


def send_at_once(host: str, port: int) -> None:
    """Have this process's connections to a port send every message at once (TCP_NODELAY).

    ur_rtde leaves Nagle's algorithm on: a target waits until the one before it is acknowledged, which the robot's next
    package does. Without packages, an acknowledgement takes 40 ms, and five targets arrive together.
    """
    peers = {where[4][:2] for where in socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # not a socket, or not a connected one
            link = socket.socket(fileno=int(descriptor.name))
            try:
                if link.getpeername() in peers:
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            finally:
                link.detach()  # it is ur_rtde's


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Timeout of one answer [s], and the most bytes of it.
TIMEOUT_S, LONGEST = 2.0, 4096


class LineReader:
    """Read lines from a peer that may send anything, each with one deadline and one size limit, however it arrives.

    What has arrived by the time that this thread looks is in time, however late the thread is.

    Args:
        link: The connected socket; its timeout is set with every read.
        longest: The most bytes without an end of line.
        pause_s: After this long without another byte, a line ends without its newline; None: never [s].
    """

    def __init__(self, link: socket.socket, longest: int, pause_s: float | None = None) -> None:
        self._link, self._longest, self._pause_s = link, longest, pause_s
        self._buffer = b""

    def read(self, timeout_s: float) -> bytes:
        """Return the next line, stripped.

        Raises:
            TimeoutError: It was not complete after ``timeout_s``.
            ConnectionError: It is too long, or the connection was closed.
        """
        end = monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = max(0.0, end - monotonic())
            if len(self._buffer) > self._longest:
                raise ConnectionError(f"it sent more than {self._longest} bytes without the end of a line")
            ends_by_itself = self._pause_s is not None and self._pause_s < left and self._buffer
            self._link.settimeout(self._pause_s if ends_by_itself else left)
            try:
                data = self._link.recv(4096)
            except (TimeoutError, BlockingIOError):
                if not ends_by_itself:
                    raise TimeoutError from None
                break
            if not data:
                raise ConnectionError("it closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.strip()

    def clear(self) -> None:
        """Discard what has arrived and was not read."""
        self._buffer = b""


class DashboardClient:
    """One connection, as a context manager.

    Args:
        host: The controller.
        arm: The arm it should control, by its name in the catalogue of arms.

    Raises:
        RobotError: Nothing listens there, or what does is not a dashboard.
    """

    def __init__(self, host: str, arm: str = "ARM") -> None:
        self._where = f"dashboard at {host}, port {PORT}"
        try:
            self._socket = socket.create_connection((host, PORT), timeout=TIMEOUT_S)
        except OSError as error:
            services = ", and that the dashboard server is enabled under Settings, Security, Services"
            raise RobotError(connection_refused_message(host, PORT, error, services, arm)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = LineReader(self._socket, LONGEST)
        try:
            self._line()
        except (OSError, UnicodeDecodeError) as error:
            self._socket.close()
            why = f"said nothing for {TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else f"failed: {error}"
            raise RobotError(
                f"the {self._where} accepted the connection and {why}: the dashboard hangs, or something else answers "
                "there; close other programs that use it, or restart the controller, and check ur.host"
            ) from None

    def ask(self, question: str) -> str:
        """Return the answer to one question.

        Raises:
            RobotError: There was no answer.
        """
        try:
            self._socket.sendall(question.encode() + b"\n")
            return self._line()
        except TimeoutError:
            raise RobotError(f"the {self._where} did not answer {question!r} within {TIMEOUT_S:g} s") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RobotError(f"the {self._where} did not answer {question!r} as a dashboard does: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _line(self) -> str:
        return self._lines.read(TIMEOUT_S).decode("utf-8")
