"""Port 63352: the text protocol of Robotiq's URCap, ``GET VAR`` and ``SET VAR VALUE [VAR VALUE ...]``.

The format is the one that clients of real grippers expect: ``VAR VALUE`` ends with a newline, ``ack``
does not, and a register that cannot be read answers ``?``.
"""

from td3robot.simulators.controller import Controller
from td3robot.simulators.gripper import READABLE
from td3robot.simulators.loop import Connection, Handler


class GripperPort(Handler):
    """One client of the URCap's server."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        self._connection, self._controller = connection, controller
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Answer every complete line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        answers = "".join(self._answer(line.decode("ascii", "replace").split()) for line in lines)
        if answers and not self._controller.gripper_silent:
            self._connection.send(answers.encode())

    def _answer(self, words: list[str]) -> str:
        gripper = self._controller.gripper
        if len(words) == 2 and words[0] == "GET":
            name = words[1]
            if name not in READABLE or not gripper.powered:
                return f"{name} ?\n"
            return f"{name} {gripper.get(name)}\n"
        if len(words) >= 3 and words[0] == "SET" and len(words) % 2 == 1:
            try:
                values = {name: int(value) for name, value in zip(words[1::2], words[2::2], strict=True)}
            except ValueError:
                return "?\n"
            return "ack" if gripper.powered and gripper.write(values) else "?\n"
        return "?\n" if words else ""
