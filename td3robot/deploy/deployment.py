"""One deployment from beginning to end: check, climb the ladder, play, record, report."""

import json
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from td3robot.build import robot_spec
from td3robot.config import RobotEnvironmentConfig
from td3robot.deploy.ledger import Ledger, serial_of
from td3robot.deploy.operator import Operator
from td3robot.deploy.played import Played, open_checkpoint
from td3robot.deploy.recording import FILE, Record
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session
from td3robot.deploy.speed import scaled
from td3robot.deploy.station import Station
from td3robot.errors import RobotError, Td3RobotError
from td3robot.robots.cells import CellConfig
from td3robot.robots.findings import Check
from td3robot.robots.tracker import TaughtPose

# Confirmed periods that count as having confirmed [s].
CONFIRMED_S = 1.0
# How long states are watched: by a check of its own, and before play [s].
CHECK_S, CHECK_BEFORE_PLAY_S = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for.

    Attributes:
        mode: ``check``, ``shadow``, ``confirm`` or ``run``.
        speed: Factor on every limit of speed and acceleration.
        goal: Where the tool shall go from where it stands [m], in place of drawn starts and goals.
        taught: Where objects lie, as a person says.
        records: Directory of records and of the ledger.
        override: Why a rung below may be missing, or None.
    """

    checkpoint: Path
    cell: CellConfig
    mode: str
    speed: float = 0.1
    episodes: int = 1
    seed: int = 12345
    goal: tuple[float, float, float] | None = None
    taught: dict[str, TaughtPose] = field(default_factory=dict)
    records: Path = Path("records")
    override: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Those of :meth:`RobotEnv.reset`."""
        options: dict[str, Any] = {} if self.goal is None else {"goal": self.goal}
        return options | {"stay": self.mode == "shadow" or self.goal is not None}


def check_cell(played: Played | None, cell: CellConfig, seconds: float = 2.0) -> Check:
    """Compare a policy, if there is one, with its cell, and look at the connected robot; nothing moves."""
    with Station(played.environment if played else RobotEnvironmentConfig(robot=cell.robot), cell) as station:
        return station.check(played, seconds)


def deploy(request: Request, operator: Operator) -> dict[str, Any]:
    """Do what was asked for, and return the report.

    Raises:
        ConfigError: The request makes no sense.
        LadderError: The rung below is missing.
        RobotError: The robot is no-go, or cannot be reached.
    """
    played = open_checkpoint(request.checkpoint)
    config, cell = scaled(played.environment, request.speed), request.cell.with_taught(request.taught)
    if request.mode == "confirm":
        operator.require_keys()
    with Station(config, cell) as station:
        check = station.check(played, CHECK_S if request.mode == "check" else CHECK_BEFORE_PLAY_S)
        folder = request.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{request.mode}-{played.name}"
        with closing(Record(folder / FILE)) as record:
            about = {
                "mode": request.mode, "checkpoint": str(played.path), "digest": played.digest, "speed": request.speed,
                "override": request.override, "check": check.to_json(),
            }  # fmt: skip
            record.add(
                "session", **about, contract=dict(played.policy.contract.terms), cell=cell.model_dump(mode="json")
            )
            report = about | {"robot": check.facts, "record": str(record.path)}
            ledger, serial = Ledger(request.records), serial_of(check.facts)
            if request.mode == "check":
                report["fault"] = check.objection
            else:
                if check.objection is not None:
                    raise RobotError(f"no-go: {check.objection}")
                ledger.require_calibration(serial, check.facts.get("calibration"))
                ledger.require(request.mode, serial, played.digest, request.override)
                session = station.session(request.mode, played.policy.act, record, operator)
                session.run(request.episodes, request.seed, request.options)
                report |= _figures(session, station)
            _write_down(request, report, ledger, serial, config)
            _write(folder / "report.json", report)
    return report


def recover(cell: CellConfig, records: Path, activate_gripper: bool) -> dict[str, Any]:
    """Make a robot ready after a fault, at its operator's word, and release it in the ledger.

    The arm does not move. With ``activate_gripper`` the fingers close and open once.

    Raises:
        RobotError: The cause is still there, or needs hands at the controller.
    """
    robot = cell.driver(robot_spec(cell.robot))
    try:
        robot.recover(activate_gripper)
        facts, q = robot.facts, robot.read().q.tolist()
    finally:
        robot.close()
    ledger, serial = Ledger(records), serial_of(facts)
    was = ledger.latched(serial)
    ledger.release(serial)
    return {"robot": facts, "q": q, "was": was}


def _figures(session: Session, station: Station) -> dict[str, Any]:
    driver = {} if session.mode == "shadow" else station.figures()
    return {"figures": summarize(session.episodes), "driver": driver, "fault": session.fault}


def _write_down(
    request: Request, report: dict[str, Any], ledger: Ledger, serial: str, config: RobotEnvironmentConfig
) -> None:
    """Write a passed rung, or a fault of a moved arm, into the ledger."""
    mode, fault, digest = request.mode, report["fault"], report["digest"]
    if fault is None and _climbed(mode, report, config):
        ledger.passed(mode, serial, digest, Path(report["record"]), request.speed, request.override)
        ledger.note_calibration(serial, report["robot"].get("calibration"))
    elif fault is not None and mode in ("confirm", "run"):
        ledger.latch(serial, fault)


def _climbed(mode: str, report: dict[str, Any], config: RobotEnvironmentConfig) -> bool:
    """Whether a session without a fault counts as a rung."""
    if mode == "check":
        return bool(report["check"]["go"])
    figures = report["figures"]
    if mode == "confirm":
        return bool(figures["steps"] >= CONFIRMED_S * config.robot.control_rate_hz)
    return "operator" not in figures["ended"]


def _write(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise Td3RobotError(f"the report {path} could not be written: {error.strerror}") from None
