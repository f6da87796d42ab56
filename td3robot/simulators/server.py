"""The stand-in's process: its ports, its 500 Hz clock, and its end when its parent ends."""

import gc
import logging
import signal
import time
from collections.abc import Callable

from td3robot.errors import Td3RobotError
from td3robot.processes import STOP_SIGNALS, Parent, raise_priority
from td3robot.robots.ur.generations import (
    DASHBOARD_PORT,
    GRIPPER_PORT,
    PRIMARY_PORT,
    RTDE_PORT,
    SCRIPT_PORT,
    SECONDARY_PORT,
)
from td3robot.simulators import settings
from td3robot.simulators.accounting import Clock
from td3robot.simulators.arm import PERIOD_S, RATE_HZ, SimulatedArm, own_parameters
from td3robot.simulators.controller import Controller
from td3robot.simulators.faults import Faults
from td3robot.simulators.loop import LAB, Connection, Line, Loop, Service
from td3robot.simulators.motion import Reference, Servo
from td3robot.simulators.ports.lab import LabContext, LabPort
from td3robot.simulators.ports.primary import PrimaryPort
from td3robot.simulators.ports.rtde import InputsInUse, RtdePort, sources
from td3robot.simulators.ports.text import DashboardPort, GripperPort, ScriptPort
from td3robot.simulators.vision import VisionSystem

# If later than this, the clock does not catch up: the controller's time falls behind wall time [s].
MAX_LATE_S = 0.02
# Real-time priority, if allowed: a real controller is another computer, which nothing here slows down. Above the
# driver's worker (20 by default), in which ur_rtde spins while it waits for the controller.
PRIORITY = 30
READY = "ready"


class Server:
    """One stand-in. ``run`` returns when it is stopped, or its parent is gone."""

    def __init__(self, config: settings.ControllerConfig) -> None:
        self.config = config
        self.loop = Loop(config.host)
        self._listen()  # first, so that a taken port is reported at once
        spec = config.spec()
        parameters = own_parameters(spec.arm, config.calibration)
        self.arm = SimulatedArm(
            spec, config.object_models(), parameters, config.cell_model.tool, config.cell_model.friction
        )
        self.controller = Controller(self.arm, config)
        self.line = Line(lambda: self.controller.time_s, config.seed, config.cell_model.network)
        self.vision = VisionSystem(self.arm, config.tracker, config.cell_model.camera, config.seed)
        self.faults = Faults(config.faults, self.controller, self.line, self.loop, self.vision)
        self.clock = Clock()
        self._began = time.monotonic()
        self.controller.inputs.clock = lambda: time.monotonic() - self._began
        self.stopped = False
        self._parent: Parent | None = None
        self._sources, self._in_use = sources(self.controller), InputsInUse()

    def _listen(self) -> None:
        for service in (
            Service("rtde", RTDE_PORT, self._rtde),
            Service("dashboard", DASHBOARD_PORT, lambda it: DashboardPort(it, self.controller)),
            Service("primary", PRIMARY_PORT, self._primary),
            Service("secondary", SECONDARY_PORT, self._primary),
            Service("script", SCRIPT_PORT, lambda it: ScriptPort(it, self.controller)),
            Service("gripper", GRIPPER_PORT, lambda it: GripperPort(it, self.controller)),
            Service(LAB, self.config.lab_port, self._lab),
        ):
            self.loop.listen(service)

    def run(self) -> None:
        """Tick until stopped."""
        self._warm_up()
        self.clock.is_real_time = raise_priority(PRIORITY, inherited=False)
        gc.collect()
        gc.freeze()
        self._began = time.monotonic() - self.controller.time_s
        while not self.stopped:
            due = self._began + self.controller.time_s + PERIOD_S
            self.loop.poll(due)
            late = time.monotonic() - due
            if late > MAX_LATE_S:
                self.clock.lost_s += late
                self._began += late
                self.controller.lose(late)
            self.clock.count(max(late, 0.0))
            self.tick()
        self.loop.close()

    def tick(self) -> None:
        """Advance by one controller period on every port."""
        if self._parent is not None and self.controller.ticks % RATE_HZ == 0 and self._parent.is_gone:
            self.stop()
        self.faults.tick()
        self.line.tick()
        self.controller.tick()
        self.vision.tick()
        self.loop.tick()

    def stop(self) -> None:
        """Make :meth:`run` return after this tick."""
        self.stopped = True

    def live_with(self, parent: Parent) -> None:
        """Stop when the channel to the parent closes, or the parent is gone."""
        self.loop.watch_file(parent.channel.fileno(), self.stop)  # nothing else is sent there
        self._parent = parent

    def _warm_up(self) -> None:
        """Make the first steps of arm and servo, which are slow, before time counts."""
        servo, reference = Servo(self.arm.q), Reference(self.arm.q)
        for _ in range(50):
            servo.step(reference, 1.0)
            self.arm.step(reference.q, 0.0)
        self.arm.reset(self.arm.spec.arm.home)

    def _primary(self, connection: Connection) -> PrimaryPort:
        return PrimaryPort(connection, self.controller)

    def _lab(self, connection: Connection) -> LabPort:
        return LabPort(connection, LabContext(self.controller, self.faults, self.clock))

    def _rtde(self, connection: Connection) -> RtdePort:
        return RtdePort(connection, self.controller, self._sources, self._in_use, self.line)


def run_simulator(
    config: settings.ControllerConfig,
    parent: Parent | None = None,
    on_listening: Callable[[], None] = lambda: None,
) -> None:
    """Run a stand-in in this process until it is interrupted.

    Args:
        config: What to stand in for.
        parent: Gets a message when the stand-in serves, and ends it.
        on_listening: Called once all ports are open.

    Raises:
        RobotError: A port is taken.
    """
    server = Server(config)
    on_listening()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: server.stop())
    if parent is not None:
        server.live_with(parent)
        parent.answer(READY)
    server.run()


def run_child(parent: Parent) -> None:
    """Run a stand-in as a child process; the first message has its settings."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        run_simulator(parent.next(), parent)
    except Td3RobotError as error:
        parent.answer(error)
