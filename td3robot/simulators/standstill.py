"""Watches from outside when the stand-in's arm comes to rest, and whether it stays there."""

import json
import socket
import threading
from time import monotonic

from td3robot.errors import RobotError
from td3robot.simulators.process import UrSimulator

# How often the lab is polled [s]; it answers once per 2 ms period.
LOOK_S = 0.01
# The arm is at rest if every joint is slower than this [rad/s].
AT_REST_RAD_S = 0.01


class StandstillMonitor(threading.Thread):
    """Sample the arm's speed over a separate connection to the lab, from ``start`` to ``finish``."""

    def __init__(self, simulator: UrSimulator) -> None:
        super().__init__(name="rest-watch", daemon=True)
        self._address = (simulator.host, simulator.config.lab_port)
        self._ending = threading.Event()
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        """Sample until finished, or until the lab stops answering."""
        try:
            with socket.create_connection(self._address, 2.0) as lab, lab.makefile("r") as answers:
                while not self._ending.wait(LOOK_S):
                    lab.sendall(b'{"state": true}\n')
                    self._samples.append((monotonic(), max(map(abs, json.loads(answers.readline())["dq"]))))
        except (OSError, ValueError):
            return  # the stand-in was killed, as faults do

    def finish(self) -> None:
        """Stop sampling."""
        self._ending.set()
        self.join()

    def moved_before(self, at: float) -> bool:
        """Whether the arm moved in the 0.3 s before a time."""
        return any(at - 0.3 < time <= at and speed > AT_REST_RAD_S for time, speed in self._samples)

    def rest_after(self, at: float) -> float:
        """Return how long after a time the arm last moved [s]; the watch must have run long enough.

        Raises:
            RobotError: There is no sample after that time.
        """
        after = [(time, speed) for time, speed in self._samples if time > at]
        if not after:
            raise RobotError("the stand-in's lab did not answer after the fault")
        moving = [time for time, speed in after if speed > AT_REST_RAD_S]
        return max(moving, default=at) - at
