"""Port 30003, where clients upload their programs."""

import hashlib

from td3robot.simulators.control_script import ControlScript
from td3robot.simulators.controller import Controller
from td3robot.simulators.loop import Connection, Handler

# SHA-256 of what ur_rtde 1.6.5 uploads to each version of PolyScope. Any other script is refused, so that another
# version of ur_rtde fails loudly instead of being misunderstood.
KNOWN_SCRIPTS = {
    "5.11": "596761a93dfb175355b265245f9b94f8807528bf7ff85a654a61448f82ae8bf8",
    "5.23": "5462851f747f0a22a3748c6e4f376cee798f1b14edaa0a12721d4cedc8c715b0",
}
# A script is complete if nothing follows for this long [s]; UR's interpreter waits for the end of the program instead.
WHOLE_AFTER_S = 0.3


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
