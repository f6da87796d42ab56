"""One deployment from beginning to end: check, climb the ladder, play, record, report."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from td3robot.build import robot_spec
from td3robot.config import DisturbanceConfig, RobotEnvironmentConfig
from td3robot.deploy.ledger import LadderError, Ledger, serial_of
from td3robot.deploy.loaded_policy import LoadedPolicy, open_checkpoint, scaled
from td3robot.deploy.operator import Operator
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session
from td3robot.deploy.station import Station
from td3robot.errors import ConfigError, RobotError
from td3robot.records import FILE, Record, write_report
from td3robot.robots.cells import CellConfig
from td3robot.robots.objects import TaughtPose
from td3robot.robots.physical import Check, PhysicalRobot

# Confirmed time from which a session counts as ``confirm`` [s].
CONFIRMED_S = 1.0
# How long states are watched: by a separate check, and before play [s].
CHECK_S, CHECK_BEFORE_PLAY_S = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A requested deployment.

    Attributes:
        mode: ``check``, ``shadow``, ``confirm`` or ``run``.
        speed: Factor on every speed and acceleration limit.
        goal: The numbers of a goal from where the arm stands [m, rad], in place of sampled starts and goals.
        taught: Where objects lie, according to a person.
        records: Directory of records and of the ledger.
        override: Why a stage below may be missing, or None.
        unattended: Whether ``run`` may move the arm with nobody at a terminal.
        on_record: Called with the record's path once it has begun, before anything moves.
    """

    checkpoint: Path
    cell: CellConfig
    mode: str
    speed: float = 0.1
    episodes: int = 1
    seed: int = 12345
    goal: tuple[float, ...] | None = None
    taught: dict[str, TaughtPose] = field(default_factory=dict)
    records: Path = Path("records")
    override: str | None = None
    unattended: bool = False
    on_record: Callable[[Path], None] = lambda path: None

    @property
    def options(self) -> dict[str, Any]:
        """The options for :meth:`RobotEnv.reset`."""
        options: dict[str, Any] = {} if self.goal is None else {"goal": self.goal}
        return options | {"stay": self.mode == "shadow" or self.goal is not None}


def check_cell(loaded: LoadedPolicy | None, cell: CellConfig, seconds: float = 2.0) -> Check:
    """Compare a policy, if there is one, with its cell, and check the connected robot; nothing moves.

    Raises:
        MissingExtraError: The robot's driver is not installed.
    """
    cell.require_driver()
    with Station(loaded.environment if loaded else RobotEnvironmentConfig(robot=cell.robot), cell) as station:
        return station.check(loaded, seconds)


def deploy(request: Request, operator: Operator) -> dict[str, Any]:
    """Carry out a request, and return the report.

    Raises:
        ConfigError: The request makes no sense.
        LadderError: The stage below is missing.
        MissingExtraError: The robot's driver is not installed.
        RobotError: The robot is no-go, or cannot be reached.
    """
    request.cell.require_driver()
    loaded = open_checkpoint(request.checkpoint)
    config, cell = scaled(loaded.environment, request.speed), request.cell.with_taught(request.taught)
    seconds = CHECK_S if request.mode == "check" else CHECK_BEFORE_PLAY_S
    with Station(config, cell) as station:
        goal = None if request.goal is None else np.array(request.goal)
        if goal is not None:
            station.environment.initial.require_goal(goal)
        _require_operator(request, operator)
        operator.say(f"connecting to {cell.host}, and checking it; its states are watched for {seconds:g} s")
        check = station.check(loaded, seconds, goal)
        folder = request.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{request.mode}-{loaded.name}"
        with closing(Record(folder / FILE)) as record:
            about = {
                "checkpoint": str(loaded.path), "digest": loaded.digest, "speed": request.speed,
                "override": request.override, "unattended": request.unattended, "check": check.to_json(),
            }  # fmt: skip
            record.begin(
                request.mode, **about, contract=dict(loaded.policy.contract.terms), cell=cell.model_dump(mode="json")
            )
            request.on_record(record.path)
            report = {"mode": request.mode} | about | {"robot": check.facts, "record": str(record.path)}
            ledger = Ledger(request.records, recovery=cell.recovery)
            serial = serial_of(check.facts)
            if request.mode == "check":
                report["fault"] = check.objection
            else:
                if check.objection is not None:
                    raise RobotError(f"no-go: {check.objection}")
                ledger.require_calibration(serial, check.facts.get("calibration"))
                ledger.require(request.mode, serial, loaded.digest, request.override)
                if request.mode != "shadow":
                    operator.say(f"taking control of {cell.host}")
                session = station.session(request.mode, loaded.policy.act, record, operator)
                session.on_fault = partial(ledger.latch, serial)
                moves = request.mode in ("confirm", "run")
                unwritten = _play(session, request, ledger.driving(serial, record.path) if moves else nullcontext())
                report |= _figures(session, station, loaded.environment.disturbance)
                if (seen := station.tracker_figures()) is not None:
                    report["tracker"] = seen
                    record.add("tracker", **seen)
                if unwritten is not None:
                    write_report(folder, report)
                    raise unwritten
            report["not_passed"] = _not_passed(request.mode, report, config)
            _write_down(request, report, ledger, serial)
            write_report(folder, report)
    return report


def _require_operator(request: Request, operator: Operator) -> None:
    """Require somebody at a terminal for the modes that move the arm."""
    if request.mode == "confirm":
        operator.require_keys()
    if request.mode == "run" and not (operator.present or request.unattended):
        raise ConfigError(
            "--mode run moves the arm, and standard input is no terminal, so nobody can stop the arm from here; start "
            "it from a terminal, or give --unattended"
        )


def recover(
    cell: CellConfig, records: Path, activate_gripper: bool = False, operator: Operator | None = None
) -> dict[str, Any]:
    """Recover a robot from a fault at its operator's word, and release it in the ledger.

    The arm does not move. With ``activate_gripper``, the fingers close and open once; the operator is asked before.

    Raises:
        OperatorStop: The operator declined.
        RobotError: The cause is still there, or needs hands at the controller.
    """
    watched = cell.driver(robot_spec(cell.robot), passive=True)
    try:
        holds = _holds(watched)
    finally:
        watched.close()
    ledger, serial = Ledger(records), serial_of(watched.facts)
    with ledger.held(serial):
        if activate_gripper and operator is not None:
            _ask_before_fingers_move(operator, holds, "the gripper's fingers will close and open")
        robot = cell.driver(robot_spec(cell.robot))
        try:
            robot.recover(activate_gripper)
            facts, q = robot.facts, robot.read().q.tolist()
        finally:
            robot.close()
        if serial_of(facts) != serial:
            raise RobotError(f"the robot changed from {serial} to {serial_of(facts)} while it was recovered; try again")
        was = ledger.latched(serial)
        ledger.release(serial)
    return {"robot": facts, "q": q, "was": was}


def grip(cell: CellConfig, closed: float, records: Path, operator: Operator) -> float:
    """Open or close a robot's gripper while its arm rests, and return the closed fraction that the fingers reached.

    Args:
        cell: Where the robot is.
        closed: Closed fraction in [0, 1].
        records: Directory of records, whose own ledger is read as well.
        operator: Is asked before the fingers move.

    Raises:
        LadderError: Another program drives the robot, or a fault is pending.
        OperatorStop: The operator declined.
        RobotError: The robot cannot be reached, or its fingers did not open.
    """
    cell.require_driver()
    with Station(RobotEnvironmentConfig(robot=cell.robot), cell) as station:
        robot = station.robot
        holds = _holds(robot)
        ledger, serial = Ledger(records, recovery=cell.recovery), serial_of(robot.facts)
        ledger.require_released(serial)
        _ask_before_fingers_move(operator, holds, "the gripper will " + ("close" if closed > 0.0 else "open"))
        with ledger.driving(serial, records):
            robot.take_control()
            station.environment.connect()
            station.environment.travel.grip(closed)
            return robot.spec.gripper.closed_fraction(robot.read().driver_q)


def _ask_before_fingers_move(operator: Operator, holds: bool, what: str) -> None:
    """Have the operator take what the gripper holds, or agree that its fingers move."""
    if holds:
        operator.take(f"{what}, and it holds something that will fall: take hold of it")
    else:
        operator.agree(f"{what}; keep your fingers out, and take hold of what it may hold")


def _holds(robot: PhysicalRobot) -> bool:
    """Open a robot for reading, and return whether its gripper is known to hold something.

    Its recovery reports whatever else is wrong once the robot is identified.
    """
    try:
        robot.connect()
        return robot.holds
    except RobotError:
        if not robot.facts:
            raise
        return False


def _play(session: Session, request: Request, driving: AbstractContextManager[None]) -> LadderError | None:
    """Play all episodes; return why the ledger could not be told that they are over, with what became of them."""
    try:
        with driving:
            session.run(request.episodes, request.seed, request.options)
    except LadderError as error:
        if not session.episodes:
            raise  # nothing moved
        over = session.fault or "the session is over, and the arm rests"
        return LadderError(f"{over}; but {error}; it counts as driven until {request.cell.recovery}")
    return None


def _figures(session: Session, station: Station, trained: DisturbanceConfig) -> dict[str, Any]:
    driver = {} if session.mode == "shadow" else station.figures()
    return {"figures": summarize(session.episodes, trained), "driver": driver, "fault": session.fault}


def _write_down(request: Request, report: dict[str, Any], ledger: Ledger, serial: str) -> None:
    """Record a passed stage, or a fault of a moved arm, in the ledger."""
    mode, fault, digest = request.mode, report["fault"], report["digest"]
    if report["not_passed"] is None:
        ledger.passed(mode, serial, digest, Path(report["record"]), request.speed, request.override)
        ledger.note_calibration(serial, report["robot"].get("calibration"))
    elif fault is not None and mode in ("confirm", "run"):
        ledger.latch(serial, fault)


def _not_passed(mode: str, report: dict[str, Any], config: RobotEnvironmentConfig) -> str | None:
    """Return why a session does not count as a stage, or None if it does."""
    if report["fault"] is not None:
        return "the check says no-go" if mode == "check" else "a fault ended it"
    if mode == "check":
        return None
    figures = report["figures"]
    if mode == "confirm":
        moved_s = figures["steps"] / config.robot.control_rate_hz
        return (
            None
            if moved_s >= CONFIRMED_S
            else f"the arm moved for {moved_s:g} s; at least {CONFIRMED_S:g} s are required"
        )
    return "the operator stopped it" if "operator" in figures["ended"] else None
