"""Ports with text protocols: the dashboard (29999), uploaded programs (30003), and the gripper's URCap (63352)."""

import hashlib

from td3robot.simulators.control_script import ControlScript
from td3robot.simulators.controller import Controller, RuntimeState
from td3robot.simulators.gripper import READABLE
from td3robot.simulators.loop import Connection, Handler, LineHandler

BANNER = "Connected: Universal Robots Dashboard Server"
# These are answered in remote control only.
REMOTE_ONLY = ("power on", "power off", "brake release", "unlock protective stop", "play", "stop", "pause", "load")
# SHA-256 of what ur_rtde 1.6.5 uploads to each version of PolyScope. Any other script is refused, so that another
# version of ur_rtde fails loudly instead of being misunderstood.
KNOWN_SCRIPTS = {
    "5.11": "596761a93dfb175355b265245f9b94f8807528bf7ff85a654a61448f82ae8bf8",
    "5.23": "5462851f747f0a22a3748c6e4f376cee798f1b14edaa0a12721d4cedc8c715b0",
}
# A script is complete if nothing follows for this long [s]; UR's interpreter waits for the end of the program instead.
WHOLE_AFTER_S = 0.3


class DashboardPort(LineHandler):
    """One dashboard client."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        super().__init__(connection)
        self._controller = controller
        connection.send(BANNER.encode() + b"\n")

    def _answer(self, line: bytes) -> bytes:
        command = line.decode("utf-8", "replace").strip()
        if not command:
            return b""
        answer = self._reply(command).encode() + b"\n"
        if command.lower() == "quit":
            self._connection.send(answer)
            self._connection.close()
        return answer

    def _reply(self, command: str) -> str:
        controller, lower = self._controller, command.lower()
        if not controller.remote and any(lower == word or lower.startswith(f"{word} ") for word in REMOTE_ONLY):
            return f'Command "{command}" is not allowed: the robot is not in remote control'
        major, minor, bugfix, build = controller.config.version
        if lower in ("polyscopeversion", "version"):
            number = f"{major}.{minor}.{bugfix}.{build}"
            return f"URSoftware {number} (Jan 01 2024)" if lower == "polyscopeversion" else number
        if lower.startswith("popup "):
            controller.refuse(command[6:])
            return "showing popup"
        if lower.startswith("addtolog "):
            controller.note(f"log: {command[9:]}")
            return "Added log message"
        if lower.startswith("load "):
            return f"File not found: {command[5:]}"
        answer = self._ask(lower)
        return self._act(lower) if answer is None else answer

    def _ask(self, command: str) -> str | None:
        controller = self._controller
        playing = controller.runtime_state is RuntimeState.PLAYING
        return {
            "robotmode": f"Robotmode: {controller.robot_mode.name}",
            "safetymode": f"Safetymode: {controller.safety_mode.name}",
            "safetystatus": f"Safetystatus: {controller.safety_mode.name}",
            "running": f"Program running: {str(playing).lower()}",
            "programstate": f"{controller.runtime_state.name} <unnamed>",
            "get loaded program": "No program loaded",
            "isprogramsaved": "true <unnamed>",
            "get robot model": controller.model,
            "get serial number": controller.config.serial_number,
            "is in remote control": str(controller.remote).lower(),
            "get operational mode": "NONE",
            "close popup": "closing popup",
            "close safety popup": "closing safety popup",
            "quit": "Disconnected",
            "play": "Failed to execute: play",
            "pause": "Failed to execute: pause",
        }.get(command)

    def _act(self, command: str) -> str:
        controller = self._controller
        if command == "stop":
            controller.end_program("stopped on the dashboard")
            return "Stopped"
        if command == "unlock protective stop":
            return controller.unlock()
        if command == "power on":
            controller.power_on()
            return "Powering on"
        if command == "power off":
            controller.power_off()
            return "Powering off"
        if command == "brake release":
            controller.release_brakes()
            return "Brake releasing"
        return f'could not understand: "{command}"'


class ScriptPort(Handler):
    """One client of port 30003. A real controller also streams its state here, which RTDE makes unnecessary."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        self._connection, self._controller = connection, controller
        self._buffer = b""
        self._arrived_s = 0.0

    def received(self, data: bytes) -> None:
        """Collect a script, and start it once it is a known one."""
        self._buffer += data
        self._arrived_s = self._controller.time_s
        if not self._buffer.rstrip().endswith(b"end"):
            return
        digest = hashlib.sha256(self._buffer).hexdigest()
        version = next((name for name, known in KNOWN_SCRIPTS.items() if digest == known), None)
        if version is None:
            return
        self._buffer = b""
        if version != self._controller.config.polyscope:
            self._controller.refuse(
                f"the control script is for PolyScope {version}, and this is {self._controller.config.polyscope}"
            )
            return
        self._controller.start_program(ControlScript(self._controller))

    def tick(self) -> None:
        """Refuse an unknown script once nothing more arrives."""
        if not self._buffer or self._controller.time_s - self._arrived_s < WHOLE_AFTER_S:
            return
        digest = hashlib.sha256(self._buffer).hexdigest()
        self._controller.refuse(
            f"unknown script of {len(self._buffer)} bytes (SHA-256 {digest[:16]}...) from {self._connection.peer}; the "
            "stand-in runs no URScript, it knows the control scripts of ur_rtde 1.6.5 alone"
        )
        self._buffer = b""

    def closed(self) -> None:
        """Drop an incomplete script."""
        self._buffer = b""


class GripperPort(LineHandler):
    """One client of the URCap's server."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        super().__init__(connection)
        self._controller = controller

    def _answer(self, line: bytes) -> bytes:
        answer = self._reply(line.decode("ascii", "replace").split())
        return b"" if self._controller.gripper_silent else answer.encode()

    def _reply(self, words: list[str]) -> str:
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
