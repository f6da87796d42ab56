"""The stand-in's process: its ports, its clock of 500 Hz, and its end with whoever started it."""

import gc
import os
import resource
import signal
import sys
import time
from collections import deque
from typing import Any

import numpy as np

from td3robot.build import robot_spec
from td3robot.standin import settings
from td3robot.standin.arm import PERIOD_S, RATE_HZ, SimulatedArm
from td3robot.standin.bench import BenchPort
from td3robot.standin.controller import Controller
from td3robot.standin.dashboard import DashboardPort
from td3robot.standin.disturbance import Line
from td3robot.standin.faults import Faults
from td3robot.standin.loop import Connection, Loop, Service
from td3robot.standin.measurements import sources
from td3robot.standin.robotiq import GripperPort
from td3robot.standin.rtde import InputsInUse, RtdePort
from td3robot.standin.script import ScriptPort
from td3robot.standin.tracker import Tracker
from td3robot.state import ObjectModel

# Later than this, the clock does not catch up: the controller's time falls behind the wall's [s].
MAX_LATE_S = 0.02
# Real-time priority, where it is allowed: a controller is another computer, which nothing here slows down. Above the
# driver's worker (20 by default), in which ur_rtde spins while it waits for the controller.
PRIORITY = 30
READY = "ready"


class Clock:
    """How well the ticks kept their time.

    Attributes:
        lost_s: Time that was given up instead of caught up with.
    """

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=5000)
        self.worst_s = self.lost_s = 0.0
        self.ticks = 0
        self.is_real_time = False
        self._started, self._used_s = time.monotonic(), _cpu_s()

    def took(self, late_s: float) -> None:
        """Count a tick."""
        self.ticks += 1
        self._late.append(late_s)
        self.worst_s = max(self.worst_s, late_s)

    def to_json(self) -> dict[str, Any]:
        """Give the figures; percentiles are those of the last ten seconds."""
        p50, p99 = np.percentile(self._late, [50, 99]) if self._late else (0.0, 0.0)
        wall = time.monotonic() - self._started
        return {
            "ticks": self.ticks,
            "late_p50_s": float(p50),
            "late_p99_s": float(p99),
            "late_worst_s": self.worst_s,
            "lost_s": self.lost_s,
            "real_time_priority": self.is_real_time,
            "cpu_fraction": (_cpu_s() - self._used_s) / wall,
        }


class Server:
    """One stand-in. ``run`` returns when it is told to stop, or its parent is gone."""

    def __init__(self, config: settings.StandinConfig) -> None:
        models = tuple(
            ObjectModel(name, item.shape, item.size_m, item.mass_kg, item.friction)
            for name, item in config.objects.items()
        )
        self.config = config
        self.loop = Loop(config.host)
        self._listen()  # first, so that a port that is taken is told at once
        self.arm = SimulatedArm(robot_spec(config.robot), models)
        self.controller: Controller = Controller(self.arm, config)
        self.line = Line(lambda: self.controller.time_s, config.seed)
        self.tracker = Tracker(self.arm, config.tracker)
        self.faults: Faults = Faults(config.faults, self.controller, self.arm, self.line, self.loop, self.tracker)
        self.clock = Clock()
        self._began = time.monotonic()
        self.controller.inputs.clock = lambda: time.monotonic() - self._began
        self.stopped = False
        self._parent: int | None = None
        self._sources, self._in_use = sources(self.controller), InputsInUse()

    def _listen(self) -> None:
        for service in (
            Service("rtde", settings.RTDE_PORT, self._rtde),
            Service("dashboard", settings.DASHBOARD_PORT, lambda it: DashboardPort(it, self.controller)),
            Service("script", settings.SCRIPT_PORT, lambda it: ScriptPort(it, self.controller)),
            Service("gripper", settings.GRIPPER_PORT, lambda it: GripperPort(it, self.controller)),
            Service("bench", self.config.bench_port, lambda it: BenchPort(it, self)),
        ):
            self.loop.listen(service)

    def run(self) -> None:
        """Tick until stopped."""
        self._warm_up()
        self.clock.is_real_time = _ask_for_real_time()
        gc.collect()
        gc.freeze()
        self._began = time.monotonic() - self.controller.time_s
        while not self.stopped:
            due = self._began + self.controller.time_s + PERIOD_S
            self.loop.serve(due)
            late = time.monotonic() - due
            if late > MAX_LATE_S:
                self.clock.lost_s += late
                self._began += late
                self.controller.lose(late)
            self.clock.took(max(late, 0.0))
            self.tick()
        self.loop.close()

    def tick(self) -> None:
        """Let one controller period pass on every port."""
        if self._parent is not None and self.controller.ticks % RATE_HZ == 0 and os.getppid() != self._parent:
            self.stop()
        self.faults.tick()
        self.line.tick()
        self.controller.tick()
        self.tracker.tick()
        for connection in list(self.loop.connections):
            if isinstance(connection.handler, RtdePort | ScriptPort):
                connection.handler.tick()

    def stop(self) -> None:
        """Return from :meth:`run` after this tick."""
        self.stopped = True

    def live_with(self, lifeline: int, parent: int) -> None:
        """Stop when a pipe from the parent closes, or the parent is another than ``parent``."""

        def read() -> None:
            if not os.read(lifeline, 1024):
                self.loop.forget_file(lifeline)
                self.stop()

        self.loop.watch_file(lifeline, read)
        self._parent = parent

    def _warm_up(self) -> None:
        """Take the first steps, which are slow, before time counts."""
        for _ in range(50):
            self.arm.step(self.arm.q, 0.0)
        self.arm.reset(self.arm.spec.arm.home)

    def _rtde(self, connection: Connection) -> RtdePort:
        return RtdePort(connection, self.controller, self._sources, self._in_use, self.line)


def serve(config: settings.StandinConfig, lifeline: int | None = None, parent: int = 0) -> None:
    """Run a stand-in in this process until it is interrupted.

    Args:
        config: What to stand in for.
        lifeline: A pipe whose end ends the stand-in.
        parent: The process whose death ends it, where there is a lifeline.

    Raises:
        RobotError: A port is taken.
    """
    server = Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: server.stop())
    if lifeline is not None:
        server.live_with(lifeline, parent)
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
    server.run()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _ask_for_real_time() -> bool:
    """Ask for real-time scheduling; most systems grant it to administrators only."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except (AttributeError, OSError):
        return False
    return True
