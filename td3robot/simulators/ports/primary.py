"""Ports 30001 and 30002: the primary and secondary interfaces, which send clients the arm's own kinematics.

Big-endian messages as in UR's "Client Interfaces" and its client library: a version message, then the state ten times
a second. Two of the state's parts are modelled: the tool's pose and, once per client, the kinematics.
"""

import struct
import zlib

from td3robot.robots.ur.calibration import DhParameters
from td3robot.simulators.arm import RATE_HZ, six
from td3robot.simulators.controller import Controller
from td3robot.simulators.loop import Connection, Handler

STATE_HZ = 10
STATE, MESSAGE = 16, 20
CARTESIAN_INFO, KINEMATICS_INFO = 4, 5
VERSION, NO_SOURCE = 3, 255
# Status of the kinematics: 1 is a linearised calibration, with which arms leave the factory (assumed).
CALIBRATED = 1
# Backlog of state messages for a client that does not read; beyond it they are skipped [bytes].
MAX_BACKLOG = 1 << 14


class PrimaryPort(Handler):
    """One client of the primary or secondary interface."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        self._connection, self._controller = connection, controller
        self._send(MESSAGE, self._version())
        self._send(STATE, self._tool() + _part(KINEMATICS_INFO, kinematics_info(controller.arm.parameters)))

    def received(self, data: bytes) -> None:
        """Refuse programs: the stand-in accepts them on port 30003."""
        self._controller.refuse(f"{len(data)} bytes of script; the stand-in takes scripts on port 30003 alone")

    def tick(self) -> None:
        """Send the state if it is due."""
        if self._controller.ticks % (RATE_HZ // STATE_HZ) == 0 and self._connection.pending < MAX_BACKLOG:
            self._send(STATE, self._tool())

    def _send(self, kind: int, body: bytes) -> None:
        self._connection.send(_part(kind, body))

    def _version(self) -> bytes:
        major, minor, bugfix, build = self._controller.config.version
        name, date = b"URControl", b"01-01-2024, 00:00:00"
        stamp = round(1e6 * self._controller.time_s)
        head = struct.pack(">QBBB", stamp, NO_SOURCE, VERSION, len(name))
        return head + name + struct.pack(">BBii", major, minor, bugfix, build) + date

    def _tool(self) -> bytes:
        controller = self._controller
        return _part(CARTESIAN_INFO, struct.pack(">12d", *six(controller.tool()), *six(controller.tcp_offset)))


def kinematics_info(parameters: DhParameters) -> bytes:
    """Return an arm's packed parameters, with a checksum for each joint's."""
    rows = zip(parameters.theta, parameters.a, parameters.d, parameters.alpha, strict=True)
    checksums = [zlib.crc32(struct.pack(">4d", *row)) for row in rows]
    values = (*parameters.theta, *parameters.a, *parameters.d, *parameters.alpha)
    return struct.pack(">6I24dI", *checksums, *values, CALIBRATED)


def _part(kind: int, body: bytes) -> bytes:
    return struct.pack(">iB", 5 + len(body), kind) + body
