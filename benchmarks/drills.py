"""Fault drills: a moving arm, one fault, and what the operator sees, how long until the arm rests, what is recorded."""

import ctypes
import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import cos, sin
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from leftovers import belongings
from wire import Wire

from td3robot.build import make_robot_env, object_bounds, robot_spec
from td3robot.config import GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.deploy.ledger import LadderError, Ledger, serial_of
from td3robot.deploy.scripted_operator import PlacedObjects, ScriptedOperator
from td3robot.deploy.session import Session
from td3robot.envs.playing import Vector
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import RobotError
from td3robot.records import FILE, Record, read_record
from td3robot.robots.ur.robot import UrRobot
from td3robot.robots.ur.urcap import ACTIVE
from td3robot.simulators.process import StandstillMonitor
from td3robot.simulators.sessions import SimulatorConfig
from td3robot.simulators.sessions.ur import UrSession
from td3robot.state import JointCommand
from td3robot.tasks.grasp import GraspConfig
from td3robot.tasks.reach import ReachConfig

# The arm moves for so many control periods before the fault.
BEFORE = 10
# So often a drill is tried whose arm stops before the fault.
ATTEMPTS = 3
# Where it goes on, it does for so long after the fault; it is watched for so long after its end [s].
AFTER_S, WATCHED_S = 1.2, 1.0
# A motion begins by so much a period, and is none below so much [rad].
FIRST_RAD, MOVED_RAD = 0.002, 0.005
# What is said where nothing but this program is late.
OWN_STALL = "program that decides is late|no sign of life|this program stood still"
# The policy of the drills leads the tool around in circles at full speed [rad/s].
TURNS = 1.5


@dataclass(frozen=True, slots=True)
class Drill:
    """One fault.

    Attributes:
        name: For the table.
        strike: Brings it about.
        says: A pattern in what the operator reads, or None where the arm goes on.
        rests_within_s: From the fault to rest, at most; None where the arm goes on.
        task: ``reach`` or ``grasp``: the second has an object and a tracker.
        by_policy: Whether the fault is the policy's: ``strike`` gives the action then.
        lasts_s: Where the arm goes on, it is stopped so long after the fault.
    """

    name: str
    strike: Callable[["Scene"], Any]
    says: str | None
    rests_within_s: float | None
    task: str = "reach"
    by_policy: bool = False
    lasts_s: float = AFTER_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        said: What the operator read, or None.
        told_s: From the fault to the first word of it.
        rest_s: From the fault to the arm's last movement; None where it goes on, or nobody can see it any more.
        moving: Whether the arm was seen to move when the fault came.
        ended: How the episode ended.
        recorded: Control periods in the record, and its last kind of line.
        latched: What the ledger keeps of it, or None.
        left: Processes and sockets of this program that were not there before.
        tool_m_s: The fastest that the simulated tool really was after the fault; None where nobody can see it any more.
    """

    name: str
    said: str | None
    told_s: float | None
    rest_s: float | None
    moving: bool
    ended: str
    recorded: tuple[int, str]
    latched: str | None
    left: tuple[str, ...]
    tool_m_s: float | None

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        return asdict(self)


class DrillOperator(ScriptedOperator):
    """Notes when something was said, and stops an arm that goes on."""

    def __init__(self, lab: UrSession, say: Callable[[str], None]) -> None:
        super().__init__(lab, say)
        self.at: list[float] = []
        self.stop_at = np.inf

    def say(self, text: str) -> None:
        """Note it."""
        self.at.append(monotonic())
        super().say(text)

    def stop_wanted(self) -> bool:
        """Whether it has gone on for long enough."""
        return monotonic() > self.stop_at


class Scene:
    """A stand-in with an object and a tracker, and both tasks on it.

    Args:
        host: The stand-in's address.
        records: Directory of the drills' records.
        say: Told what the operator reads.
        timeout_scale: Factor on how late targets and states may be, for computers that are busy with other things.
        tasks: Of the drills to come.
        near: Where the driver connects to, where a proxy is between it and the stand-in.

    Attributes:
        simulator, arm: The stand-in, and the arm of the drill in progress.
        wire: The proxy, or None.
    """

    def __init__(
        self,
        host: str,
        records: Path,
        say: Callable[[str], None] = lambda text: None,
        timeout_scale: float = 1.0,
        tasks: tuple[str, ...] = ("reach", "grasp"),
        near: str | None = None,
    ) -> None:
        self._host, self._records, self._say, self._timeout_scale, self._near = host, records, say, timeout_scale, near
        self._ledger = Ledger(directory=records / "state")
        self._arms: dict[str, UrRobot] = {}
        self.wire: Wire | None = None
        self._start()
        self._environments = {name: self._make(name) for name in tasks}
        self._actions = 0
        self._underway = threading.Event()

    def close(self) -> None:
        """End the stand-in."""
        for environment in self._environments.values():
            environment.close()
        self._close_lab()

    def _close_lab(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.lab.close()

    def refusal(self, strike: Callable[["Scene"], Any]) -> tuple[str | None, float]:
        """Connect under a fault and send a few targets; returns what was said, or None, and when [s].

        Raises:
            AssertionError: Something was said, and the arm had moved.
        """
        self._tidy()
        robot = self._arms["reach"]
        start = np.array(self.simulator.state()["q"])
        strike(self)
        begin, said = monotonic(), None
        try:
            robot.connect()
            q = robot.read().q
            for _ in range(10):
                q = q + FIRST_RAD
                robot.send(JointCommand(q, 0.0))
                robot.advance()
        except RobotError as error:
            said = str(error)
        finally:
            took = monotonic() - begin
            robot.close()
            if self.wire is not None:
                self.wire.clear()
        moved = float(np.abs(self.simulator.state()["q"] - start).max())
        assert said is None or moved < MOVED_RAD, f"{said}, and the arm had moved by {moved:.3f} rad"
        return said, took

    def perform(self, drill: Drill) -> Outcome:
        """Bring the arm to move, strike, and look; again where a computer that stood still stopped the arm before."""
        name = drill.name.replace(" ", "_").replace(",", "")
        for attempt in range(ATTEMPTS):
            outcome = self._perform(drill, self._records / (f"{name}_{attempt}" if attempt else name))
            if self._struck_at < np.inf:
                break
        return outcome

    def _perform(self, drill: Drill, folder: Path) -> Outcome:
        self._tidy()
        environment = self._environments[drill.task]
        self.arm = robot = self._arms[drill.task]
        self._drill, self._struck_at, self._actions = drill, np.inf, 0
        self._underway.clear()
        self._operator = DrillOperator(self.lab, self._say)
        before = belongings()
        robot.connect()
        serial = serial_of(robot.facts)
        record = Record(folder / FILE)
        watch = self.lab.standstill_monitor()
        striker = threading.Thread(target=self._strike, daemon=True)
        session = Session(environment, self._act, record, self._operator, "run", lambda number: striker.start())
        session.on_fault = partial(self._ledger.latch, serial)
        watch.start()
        try:
            with (
                suppress(LadderError),
                self._ledger.driving(serial, record.path),
            ):  # a full disk refuses the ledger, too
                session.run(1, 1, {"stay": True})
            sleep(WATCHED_S)
        finally:
            watch.finish()
            self._underway.set()  # where the arm never got that far
            if striker.ident is not None:
                striker.join()
            _lift_limit()
            latched = self._ledger.latched(serial)
            self._ledger.release(serial)
            if self.wire is not None:
                self.wire.clear()
            vars(robot).pop("read", None)
            record.close()
            environment.close()
        left = tuple(sorted(belongings() - before))
        return self._judge(drill, session, watch, folder / FILE, latched, left)

    def _judge(
        self,
        drill: Drill,
        session: Session,
        watch: StandstillMonitor,
        path: Path,
        latched: str | None,
        left: tuple[str, ...],
    ) -> Outcome:
        struck = self._struck_at
        told = [(at, text) for at, text in zip(self._operator.at, self._operator.said, strict=True) if at >= struck]
        fault = session.fault
        lines = list(read_record(path))
        try:
            seen = fault is not None and not self.simulator.child.ended
            rest = watch.rest_after(struck) if seen else None
            fastest = self.lab.wire()["measured"]["tcp_speed_m_s"]
        except RobotError:
            rest = fastest = None
        return Outcome(
            drill.name,
            None if fault is None else fault,
            None if fault is None or not told else told[0][0] - struck,
            rest,
            watch.moved_before(struck),
            session.episodes[-1].ended,
            (sum(line["kind"] == "period" for line in lines), lines[-1]["kind"]),
            latched,
            left,
            fastest,
        )

    def _strike(self) -> None:
        self._underway.wait()
        if self._actions >= BEFORE and not self._drill.by_policy:
            self.lab.reset_wire()
            self._struck_at = monotonic()
            self._operator.stop_at = self._struck_at + self._drill.lasts_s
            self._drill.strike(self)

    def _act(self, observation: Vector) -> Vector:
        self._actions += 1
        angle = TURNS * self._actions * self.arm.spec.period_s
        circle = np.zeros(self._environments[self._drill.task].action_space.shape or (), np.float32)
        circle[:2] = cos(angle), sin(angle)
        if circle.size == 5:
            circle[4] = -1.0
        if self._actions == BEFORE:
            self._underway.set()
        if self._drill.by_policy and self._actions > BEFORE:
            if self._struck_at == np.inf:
                self._struck_at = monotonic()
                self._operator.stop_at = self._struck_at + AFTER_S
            action: Vector = np.asarray(self._drill.strike(self), np.float32) * np.ones_like(circle)
            return action
        return circle

    def _make(self, task: str) -> RobotEnv:
        kind = GraspConfig() if task == "grasp" else ReachConfig()
        guard = GuardConfig(max_state_age_s=GuardConfig().max_state_age_s * self._timeout_scale)
        config = RobotEnvironmentConfig(task=kind, episode_s=30.0, guard=guard)
        self._arms[task] = arm = UrRobot(robot_spec(self.cell.robot), self.cell)
        objects = None
        if kind.objects():
            objects = PlacedObjects(self.cell.objects(object_bounds(config, arm.spec)), self.lab)
        return make_robot_env(config, cell=self.cell, objects=objects, robot=arm)

    def _start(self) -> None:
        setup = SimulatorConfig(RobotConfig(), GraspConfig().objects(), self._host, timeout_scale=self._timeout_scale)
        self.lab = UrSession(setup)
        self.simulator = self.lab.simulator
        ur = self.lab.cell.ur.model_copy(update={"connect_timeout_s": 5.0, "host": self._near or self._host})
        self.wire = Wire(self._near, self._host) if self._near else None
        self.cell = self.lab.cell.model_copy(update={"ur": ur})

    def _tidy(self) -> None:
        """Undo the last drill."""
        if self.simulator.child.ended:
            self._close_lab()
            self._start()
            self._environments = {name: self._make(name) for name in self._environments}
        self.simulator.reset()
        self.simulator.ask(remote=True, speed_slider=1.0)
        if self.simulator.state()["gripper"]["STA"] != ACTIVE:
            UrRobot(robot_spec(self.cell.robot), self.cell).activate_gripper()


def _fault(kind: str, **values: Any) -> Callable[[Scene], None]:
    return lambda scene: scene.simulator.fault(kind, **values)


def _kill_worker(scene: Scene) -> None:
    os.kill(scene.arm.worker_pid, signal.SIGKILL)


def _fill_disk(_scene: Scene) -> None:
    """Have every further byte refused, as a full disk does, by a limit on the size of this process's files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _lift_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def _second_client(scene: Scene) -> None:
    second = UrRobot(scene.arm.spec, scene.cell)
    try:
        second.connect()
    except RobotError:
        return
    finally:
        second.close()
    raise AssertionError("a second client was let in")


def _age(scene: Scene) -> None:
    """Have every later reading give a state of a second ago."""
    old = replace(scene.arm.read(), stamp=monotonic() - 1.0)
    scene.arm.read = lambda: old  # type: ignore[method-assign]


def _hold_interpreter(_scene: Scene) -> float:
    """Let no other thread of this process run for a while, as an extension module does that keeps Python's lock."""
    ctypes.PyDLL(None).usleep(900_000)
    return 0.0


def _hang(share: float) -> Callable[[Scene], float]:
    """Take longer than the driver waits for, by a factor."""

    def act(scene: Scene) -> float:
        sleep(share * scene.cell.ur.late_periods * scene.arm.spec.period_s)
        return 0.0

    return act


DRILLS = (
    Drill("latency 20 ms, jitter 20 ms", _fault("latency", delay_s=0.02, jitter_s=0.02), None, None),
    Drill("5 % of packets dropped", _fault("dropped_packets", probability=0.05), None, None),
    Drill("packets delayed by 40 ms", _fault("delayed_packets", probability=0.02, delay_s=0.04), None, None),
    Drill("frozen stream", _fault("frozen_stream"), "clock has not moved", 1.0),
    Drill("stream repeats one package", _fault("frozen_stream", repeat=True), "clock has not moved", 1.0),
    Drill("sockets closed", _fault("closed_sockets"), "connection to the controller was lost", 1.0),
    Drill("protective stop", _fault("protective_stop"), "protective stop", 0.6),
    Drill("emergency stop", _fault("emergency_stop"), "emergency stop", 0.6),
    Drill("servoJ refused", _fault("refused_servoj"), "control script no longer runs", 0.8),
    Drill("control script never ready", _fault("refused_servoj", how="busy", for_s=5.0), "no sign of life", 1.5),
    Drill("local control during a run", _fault("local_mode"), "control script no longer runs", 0.8),
    Drill("speed slider moved", _fault("speed_slider", fraction=0.5), "speed slider", 0.8),
    Drill("gripper deactivated", _fault("gripper_not_activated"), "not active", 1.2),
    Drill("gripper silent", _fault("gripper_silent", for_s=2.0), "not answer", 1.5),
    Drill("tracker silent", _fault("tracker_silent"), "tracker silent", 1.0, task="grasp"),
    Drill(
        "object off the table",
        _fault("tracker_jump", offset_m=(1.0, 0.0, 0.0)),
        "is seen where it cannot be",
        2.5,
        task="grasp",
    ),
    Drill("worker killed -9", _kill_worker, "worker process", 0.8),
    Drill("two clients at once", _second_client, None, None),
    Drill("disk full while recording", _fill_disk, "cannot be written any more", 0.8),
    Drill("policy gives NaN", lambda scene: np.nan, "finite numbers in", 0.8, by_policy=True),
    Drill("policy gives 1e30", lambda scene: 1e30, None, None, by_policy=True),
    Drill("observation stale", _age, "s old, more than guard.max_state_age_s", 0.8),
    Drill("policy late", _hang(1.1), "program that decides is late", 0.8, by_policy=True),
    Drill("policy stops the interpreter", _hold_interpreter, OWN_STALL, 0.8, by_policy=True),
    Drill("policy silent", _hang(8.0), "program that decides is late", 0.8, by_policy=True),
    Drill(
        "controller killed",
        _fault("killed_process"),  # ur_rtde may crash over it, and the worker process with it
        "connection to the controller was lost|clock has not moved|worker process ended",
        None,
    ),
)
