"""Port 30004: UR's Real-Time Data Exchange, protocol version 2 (UR, "Real-Time Data Exchange (RTDE) Guide")."""

import struct
from typing import Any

from td3robot.simulators.arm import RATE_HZ
from td3robot.simulators.controller import Controller
from td3robot.simulators.loop import Connection, Handler
from td3robot.simulators.network import Line
from td3robot.simulators.ports.rtde_data import FORMATS, INPUTS, OUTPUTS, Source, packing

HEADER = struct.Struct(">HB")
PROTOCOL = 2
# Backlog of data packages for a client that does not read; beyond it they are skipped, as by a controller [bytes].
MAX_BACKLOG = 1 << 16


class InputsInUse:
    """The owners of input variables: two clients cannot write the same one."""

    def __init__(self) -> None:
        self._owners: dict[str, object] = {}

    def is_taken(self, name: str, client: object) -> bool:
        """Whether another client has it."""
        return self._owners.get(name, client) is not client

    def take(self, names: list[str], client: object) -> None:
        """Assign variables to a client."""
        self._owners.update(dict.fromkeys(names, client))

    def give_back(self, client: object) -> None:
        """Free all variables of a client that left."""
        self._owners = {name: owner for name, owner in self._owners.items() if owner is not client}


class RtdePort(Handler):
    """One RTDE client."""

    def __init__(
        self,
        connection: Connection,
        controller: Controller,
        sources: dict[str, Source],
        in_use: InputsInUse,
        line: Line,
    ) -> None:
        self._connection, self._controller = connection, controller
        self._sources, self._in_use, self._line = sources, in_use, line
        self._buffer = bytearray()
        self._inputs: list[tuple[list[str], list[str], struct.Struct]] = []
        self._outputs: list[Source] = []
        self._packing = packing([])
        self._every = 1
        self._has_recipe, self._started = False, False

    def received(self, data: bytes) -> None:
        """Process complete packages."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            size, kind = HEADER.unpack_from(self._buffer)
            if size < HEADER.size:
                self._controller.note(f"RTDE client {self._connection.peer} sent a package of {size} bytes; closed")
                self._connection.close()
                return
            if len(self._buffer) < size:
                return
            payload = bytes(self._buffer[HEADER.size : size])
            del self._buffer[:size]
            self._take(chr(kind), payload)

    def closed(self) -> None:
        """Free the inputs."""
        self._in_use.give_back(self)

    def tick(self) -> None:
        """Send a data package if one is due."""
        if not self._started or self._controller.ticks % self._every:
            return
        values: list[Any] = [1]
        for source in self._outputs:
            value = source()
            if isinstance(value, list):
                values += value
            else:
                values.append(value)
        if self._connection.pending > MAX_BACKLOG:
            return
        self._line.send(self._connection, self._package("U", self._packing.pack(*values)))

    def _package(self, kind: str, payload: bytes) -> bytes:
        return HEADER.pack(HEADER.size + len(payload), ord(kind)) + payload

    def _reply(self, kind: str, payload: bytes) -> None:
        self._connection.send(self._package(kind, payload))

    def _take(self, kind: str, payload: bytes) -> None:
        if kind == "U":
            self._line.receive(lambda: self._apply(payload))
        elif kind == "V":
            self._reply("V", bytes([int(payload == struct.pack(">H", PROTOCOL))]))
        elif kind == "v":
            self._reply("v", struct.pack(">4I", *self._controller.config.version))
        elif kind == "O":
            self._set_up_outputs(payload)
        elif kind == "I":
            self._set_up_inputs(payload)
        elif kind == "S":
            self._started = self._has_recipe
            self._reply("S", bytes([int(self._started)]))
        elif kind == "P":
            self._started = False
            self._reply("P", b"\x01")
        elif kind != "M":
            self._controller.note(f"RTDE client {self._connection.peer} sent a package of unknown type {kind!r}")

    def _set_up_outputs(self, payload: bytes) -> None:
        frequency = struct.unpack_from(">d", payload)[0]
        names = _names(payload[8:])
        types = [OUTPUTS.get(name, "NOT_FOUND") for name in names]
        self._has_recipe = bool(names) and "NOT_FOUND" not in types
        if self._has_recipe:
            self._packing = packing(types)
            self._outputs = [self._sources[name] for name in names]
            self._every = max(1, round(RATE_HZ / min(max(frequency, 1.0), RATE_HZ)))
        self._reply("O", bytes([int(self._has_recipe)]) + ",".join(types).encode())

    def _set_up_inputs(self, payload: bytes) -> None:
        names = _names(payload)
        types = ["IN_USE" if self._in_use.is_taken(name, self) else INPUTS.get(name, "NOT_FOUND") for name in names]
        number = 0
        if names and all(kind in FORMATS for kind in types):
            self._in_use.take(names, self)
            self._inputs.append((names, types, packing(types)))
            number = len(self._inputs)
        self._reply("I", bytes([number]) + ",".join(types).encode())

    def _apply(self, payload: bytes) -> None:
        """Write the inputs of a data package."""
        number = payload[0] if payload else 0
        if not 1 <= number <= len(self._inputs):
            self._controller.note(
                f"RTDE client {self._connection.peer} used input recipe {number}, which it never set up"
            )
            return
        names, types, layout = self._inputs[number - 1]
        if len(payload) != layout.size:
            self._controller.note(
                f"RTDE client {self._connection.peer} sent {len(payload)} bytes for input recipe {number}, which has "
                f"{layout.size}; nothing was written"
            )
            return
        values = list(layout.unpack(payload)[1:])
        written: dict[str, Any] = {}
        for name, kind in zip(names, types, strict=True):
            count = FORMATS[kind][1]
            written[name] = values[0] if count == 1 else values[:count]
            del values[:count]
        self._controller.inputs.write(written)


def _names(payload: bytes) -> list[str]:
    return [name for name in payload.decode("ascii", "replace").split(",") if name]
