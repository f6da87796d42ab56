"""A wire that lies: a proxy between the unmodified driver and a simulated UR controller.

It listens on the controller's ports at an address of its own and passes everything on. Rules, given while it runs,
delay, drop, hold, cut, repeat, reorder or falsify what passes, in either direction. It reads RTDE's recipes, so that a
rule can name a field::

    with Wire("127.0.0.9", standin.host) as wire:      # the driver connects to 127.0.0.9
        wire.rule("rtde", "field", name="actual_q", index=0, how="add", value=0.5)
        wire.rule("gripper", "answer", to="GET POS", text="POS 999")
        wire.clear()

It is a process of its own, so that what it does takes no time from the program that drives, and ends with it.

What a rule may ``do`` (everything but ``close`` and ``refuse`` lasts until ``clear``):

=========== ======================================================================================================
``delay``   every message by ``s``, and up to ``jitter`` more
``drop``    a ``share`` of the messages
``hold``    pass nothing more on, with the connection open
``close``   close the connections; ``refuse``: close new ones, too
``repeat``  every message ``times`` more often
``swap``    every second message after the one that follows it
``old``     messages of ``s`` ago instead of the present ones
``cut``     ``bytes`` fewer, from the end; with ``sized`` the RTDE header says so, too
``flip``    a bit of byte ``at`` (from the end, where negative)
``insert``  ``text`` before every message
``trickle`` byte by byte, ``s`` apart
``flood``   ``text`` over and over, ``s`` apart
``answer``  ``text`` instead of the answer to requests that match ``to``; without ``text``, none
``field``   of an RTDE package, by ``name`` and ``index`` (left out: all of them): ``how`` is ``set``, ``add``,
            ``scale`` or ``noise`` with a ``value``, ``ramp`` with a ``value`` per second, or ``freeze``
=========== ======================================================================================================
"""

import asyncio
import json
import logging
import os
import random
import re
import signal
import struct
import subprocess
import sys
from collections import deque
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self

from td3robot.robots.ur.generations import DASHBOARD_PORT, GRIPPER_PORT, PRIMARY_PORT, RTDE_PORT, SCRIPT_PORT
from td3robot.simulators.ports.rtde import FORMATS, packing

PORTS = {
    "rtde": RTDE_PORT,
    "dashboard": DASHBOARD_PORT,
    "script": SCRIPT_PORT,
    "gripper": GRIPPER_PORT,
    "primary": PRIMARY_PORT,
}
DRIVER, ROBOT = "driver", "robot"
HEADER = struct.Struct(">HB")
# Between the simulated controller (30) and the driver's worker (20), where the system allows real-time priorities.
PRIORITY = 25
# Messages kept for ``old``.
KEPT = 5000


class Wire:
    """The proxy's process, as a context manager.

    Args:
        near: The loopback address that the driver connects to.
        far: The controller's.
    """

    def __init__(self, near: str, far: str) -> None:
        self.near, self.far = near, far
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, near, far], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def rule(self, service: str, do: str, toward: str = DRIVER, **values: Any) -> None:
        """Add a rule for one service, or ``all``; ``toward`` the driver or the robot."""
        self._ask({"service": service, "do": do, "toward": toward} | values)

    def clear(self) -> None:
        """Drop all rules: everything passes again."""
        self._ask({"do": "clear"})

    def close(self) -> None:
        """End it. May be repeated."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(5.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ok\n":
            raise RuntimeError("the proxy does not answer; its own words are above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Rule:
    """One rule, and what it remembers of each stream of messages."""

    def __init__(self, service: str, do: str, toward: str, **values: Any) -> None:
        self.service, self.do, self.toward, self.values = service, do, toward, values
        self.began = monotonic()
        self.memory: dict[Any, Any] = {}
        self.random = random.Random(0)

    def concerns(self, stream: "Stream") -> bool:
        """Whether it is for this stream."""
        return self.toward == stream.toward and self.service in ("all", stream.service)


class Rules:
    """All rules in force."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.connections: list[Connection] = []

    def take(self, request: dict[str, Any]) -> None:
        """Add a rule, or do what happens once."""
        if request["do"] == "clear":
            self.rules = []
            return
        rule = Rule(**request)
        self.rules.append(rule)
        if rule.do in ("close", "refuse"):
            for connection in list(self.connections):
                if rule.service in ("all", connection.service):
                    connection.close()

    def refuses(self, service: str) -> bool:
        """Whether new connections are refused."""
        return any(rule.do == "refuse" and rule.service in ("all", service) for rule in self.rules)


class Recipes:
    """The fields of the packages of one RTDE connection, learnt while they are agreed upon."""

    def __init__(self) -> None:
        self._asked: deque[list[str]] = deque()
        self.inputs: list[list[tuple[str, str]]] = []
        self.outputs: list[tuple[str, str]] = []

    def note(self, toward: str, message: bytes) -> None:
        """Look at a package on its way."""
        kind, payload = chr(message[2]), message[HEADER.size :]
        if kind not in "OI":
            return
        if toward == ROBOT:
            asked = payload[8:] if kind == "O" else payload
            self._asked.append([name for name in asked.decode("ascii", "replace").split(",") if name])
        elif self._asked:
            kinds = payload[1:].decode("ascii", "replace").split(",")
            fields = list(zip(self._asked.popleft(), kinds, strict=False))
            if kind == "O":
                self.outputs = fields
            elif payload[0]:
                self.inputs.append(fields)

    def fields(self, toward: str, message: bytes) -> list[tuple[str, str]]:
        """Return name and type of every field of a data package."""
        if toward == DRIVER:
            return self.outputs
        number = message[HEADER.size]
        return self.inputs[number - 1] if 1 <= number <= len(self.inputs) else []


class Stream:
    """One direction of one connection."""

    def __init__(self, connection: "Connection", toward: str, writer: asyncio.StreamWriter) -> None:
        self.connection, self.toward, self.writer = connection, toward, writer
        self.service = connection.service
        self._buffer = b""
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._past: deque[tuple[float, bytes]] = deque(maxlen=KEPT)
        self._due = 0.0

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Pass on what arrives."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                self._buffer += data
                for message in self._split():
                    self._pass(message)
        self._queue.put_nowait((0.0, b""))

    async def write(self) -> None:
        """Send what is due."""
        with suppress(OSError):
            while True:
                due, data = await self._queue.get()
                if not data or self.writer.is_closing():
                    break
                if (wait := due - monotonic()) > 0.0:
                    await asyncio.sleep(wait)
                self.writer.write(data)
        self.connection.close()

    def _split(self) -> list[bytes]:
        if self.service == "dashboard" or (self.service == "gripper" and self.toward == ROBOT):
            *lines, self._buffer = self._buffer.split(b"\n")
            return [line + b"\n" for line in lines]
        if self.service != "rtde":
            data, self._buffer = self._buffer, b""
            return [data]
        messages = []
        while len(self._buffer) >= HEADER.size and len(self._buffer) >= (size := HEADER.unpack_from(self._buffer)[0]):
            messages.append(self._buffer[:size])
            self._buffer = self._buffer[size:]
        return messages

    def _pass(self, message: bytes) -> None:
        if self.service == "rtde":
            self.connection.recipes.note(self.toward, message)
        if self.toward == ROBOT:
            self.connection.asked = message.decode("latin-1").strip()
        parts = [(0.0, message)]
        if self.service != "rtde" or message[2] == ord("U"):  # an agreement upon recipes passes as it is
            self._past.append((monotonic(), message))
            for rule in self.connection.rules.rules:
                if rule.concerns(self):
                    parts = [part for delay, data in parts for part in self._apply(rule, delay, data)]
        for delay, data in parts:
            self._due = max(self._due, monotonic() + delay)
            self._queue.put_nowait((self._due, data))

    def _apply(self, rule: Rule, delay: float, data: bytes) -> list[tuple[float, bytes]]:
        """Return what becomes of one message: (delay [s], bytes) each."""
        act = getattr(self, f"_{rule.do}", None)
        return [(delay, data)] if act is None else [(delay + more, part) for more, part in act(rule, data)]

    def _delay(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [(rule.values["s"] + rule.random.random() * rule.values.get("jitter", 0.0), data)]

    def _drop(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [] if rule.random.random() < rule.values["share"] else [(0.0, data)]

    def _hold(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return []

    def _repeat(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [(0.0, data)] * (1 + rule.values["times"])

    def _swap(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        waiting = rule.memory.pop(self, None)
        if waiting is None:
            rule.memory[self] = data
            return []
        return [(0.0, data), (0.0, waiting)]

    def _old(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        then = monotonic() - rule.values["s"]
        return [(0.0, next((past for at, past in reversed(self._past) if at <= then), self._past[0][1]))]

    def _cut(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        short = data[: -rule.values["bytes"]]
        if rule.values.get("sized"):
            short = HEADER.pack(len(short), short[2]) + short[HEADER.size :]
        return [(0.0, short)]

    def _flip(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        changed = bytearray(data)
        changed[rule.values["at"] % len(changed)] ^= rule.values.get("bit", 0x40)
        return [(0.0, bytes(changed))]

    def _insert(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [(0.0, rule.values["text"].encode("latin-1") + data)]

    def _trickle(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [(number * rule.values["s"], data[number : number + 1]) for number in range(len(data))]

    def _flood(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        return [(number * rule.values["s"], rule.values["text"].encode("latin-1")) for number in range(1000)]

    def _answer(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        if re.search(rule.values["to"], self.connection.asked) is None:
            return [(0.0, data)]
        text = rule.values.get("text")
        return [] if text is None else [(0.0, text.encode("latin-1") + b"\n" * rule.values.get("line", True))]

    def _field(self, rule: Rule, data: bytes) -> list[tuple[float, bytes]]:
        fields = self.connection.recipes.fields(self.toward, data)
        if rule.values["name"] not in [name for name, _ in fields]:
            return [(0.0, data)]
        layout = packing([kind for _, kind in fields])
        values = list(layout.unpack(data[HEADER.size :]))
        start = 1
        for name, kind in fields:
            count = FORMATS[kind][1]
            if name == rule.values["name"]:
                index = rule.values.get("index")
                for number in range(count) if index is None else (index,):
                    values[start + number] = self._told(rule, (self, number), values[start + number])
            start += count
        return [(0.0, data[: HEADER.size] + layout.pack(*values))]

    def _told(self, rule: Rule, key: Any, true: Any) -> Any:
        """Return what is told instead of a true value."""
        how, value = rule.values["how"], rule.values.get("value", 0.0)
        if how == "freeze":
            return rule.memory.setdefault(key, true)
        told = {
            "set": lambda: value,
            "add": lambda: true + value,
            "scale": lambda: true * value,
            "noise": lambda: true + value * (2.0 * rule.random.random() - 1.0),
            "ramp": lambda: true + value * (monotonic() - rule.began),
        }[how]()
        return float(told) if isinstance(true, float) else int(told)


class Connection:
    """A driver's connection, and the one behind it to the controller."""

    def __init__(self, service: str, rules: Rules, writers: list[asyncio.StreamWriter]) -> None:
        self.service, self.rules, self._writers = service, rules, writers
        self.recipes, self.asked = Recipes(), ""
        rules.connections.append(self)

    def close(self) -> None:
        """Close both. May be repeated."""
        for writer in self._writers:
            writer.close()
        if self in self.rules.connections:
            self.rules.connections.remove(self)


async def serve(near: str, far: str) -> None:
    """Pass everything on, and take rules from standard input until it ends."""
    rules = Rules()

    def accept(service: str, port: int) -> Any:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                if rules.refuses(service):
                    raise ConnectionRefusedError
                far_reader, far_writer = await asyncio.open_connection(far, port)
            except OSError:
                writer.close()
                return
            connection = Connection(service, rules, [writer, far_writer])
            to_driver = Stream(connection, DRIVER, writer)
            to_robot = Stream(connection, ROBOT, far_writer)
            await asyncio.gather(to_driver.read(far_reader), to_robot.read(reader), to_driver.write(), to_robot.write())

        return accepted

    for service, port in PORTS.items():
        await asyncio.start_server(accept(service, port), near, port)
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    print("ok", flush=True)
    while line := await requests.readline():
        rules.take(json.loads(line))
        print("ok", flush=True)
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    logging.disable()  # what is cut off is cut off on purpose
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
