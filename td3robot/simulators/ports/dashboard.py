"""Port 29999: the dashboard's commands and answers (UR, "Dashboard Server e-Series", 2022)."""

from td3robot.simulators.controller import Controller, RuntimeState
from td3robot.simulators.loop import Connection, Handler

BANNER = "Connected: Universal Robots Dashboard Server"
# These are answered in remote control only.
REMOTE_ONLY = ("power on", "power off", "brake release", "unlock protective stop", "play", "stop", "pause", "load")


class DashboardPort(Handler):
    """One dashboard client."""

    def __init__(self, connection: Connection, controller: Controller) -> None:
        self._connection, self._controller = connection, controller
        self._buffer = b""
        self._answer(BANNER)

    def received(self, data: bytes) -> None:
        """Answer every complete line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            command = line.decode("utf-8", "replace").strip()
            if command:
                self._answer(self._obey(command))
                if command.lower() == "quit":
                    self._connection.close()
                    return

    def _answer(self, text: str) -> None:
        self._connection.send(text.encode() + b"\n")

    def _obey(self, command: str) -> str:
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
