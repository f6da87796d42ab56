"""Seen from outside: when the stand-in's arm came to rest, and whether it stayed there."""

import json
import socket
import threading
from time import monotonic

from td3robot.errors import RobotError
from td3robot.standin.process import Standin

# How often the lab is asked [s]; it answers once in its period of 2 ms.
LOOK_S = 0.01
# Slower than this, any joint, is rest [rad/s].
AT_REST_RAD_S = 0.01


class RestWatch(threading.Thread):
    """Samples the arm's speed over a connection of its own to the lab, from ``start`` to ``finish``."""

    def __init__(self, standin: Standin) -> None:
        super().__init__(name="rest-watch", daemon=True)
        self._address = (standin.host, standin.config.lab_port)
        self._ending = threading.Event()
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        """Sample until finished, or until nobody answers."""
        try:
            with socket.create_connection(self._address, 2.0) as lab, lab.makefile("r") as answers:
                while not self._ending.wait(LOOK_S):
                    lab.sendall(b'{"state": true}\n')
                    self._samples.append((monotonic(), max(map(abs, json.loads(answers.readline())["dq"]))))
        except (OSError, ValueError):
            return  # the stand-in was killed, as faults do

    def finish(self) -> None:
        """Stop looking."""
        self._ending.set()
        self.join()

    def moved_before(self, at: float) -> bool:
        """Whether the arm moved in the 0.3 s before a time."""
        return any(at - 0.3 < time <= at and speed > AT_REST_RAD_S for time, speed in self._samples)

    def rest_after(self, at: float) -> float:
        """Give how long after a time the arm moved for the last time [s]; the watch has to have gone on long enough.

        Raises:
            RobotError: Nothing was seen after that time.
        """
        after = [(time, speed) for time, speed in self._samples if time > at]
        if not after:
            raise RobotError("the stand-in's lab did not answer after the fault")
        moving = [time for time, speed in after if speed > AT_REST_RAD_S]
        return max(moving, default=at) - at
