"""One deployment from beginning to end: check, climb the ladder, play, record, report."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from td3robot.build import make_robot_env, robot_spec
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.cell import CellConfig, TaughtPose
from td3robot.deploy.check import Check, check_contract, check_robot
from td3robot.deploy.ledger import Ledger, digest_of, serial_of
from td3robot.deploy.operator import Operator
from td3robot.deploy.recording import FILE, Record
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session
from td3robot.deploy.shadow import ShadowRobot
from td3robot.deploy.speed import scaled
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import ConfigError, RobotError, Td3RobotError
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.policy.policy import Policy
from td3robot.robots.ur.robot import UrRobot

# Confirmed periods that count as having confirmed [s].
CONFIRMED_S = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for.

    Attributes:
        mode: ``check``, ``shadow``, ``confirm`` or ``run``.
        speed: Factor on every limit of speed and acceleration.
        goal: Where the tool shall go from where it stands [m], in place of drawn starts and goals.
        taught: Where objects lie, told by a person.
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


@dataclass(frozen=True)
class Played:
    """A checkpoint, opened for play on an arm."""

    path: Path
    name: str
    digest: str
    policy: Policy
    environment: RobotEnvironmentConfig


def open_checkpoint(path: Path) -> Played:
    """Verify a checkpoint and read what play needs.

    Raises:
        CheckpointError: It is missing or damaged.
        ConfigError: It was trained on something that is no robot.
    """
    saved = Checkpoint(find(path))
    run = saved.config()
    if not isinstance(run.environment, RobotEnvironmentConfig):
        raise ConfigError(f"{saved.path} was trained on {run.environment.kind!r}, and there is no arm for that")
    return Played(saved.path, run.name, digest_of(saved.path), saved.policy(), run.environment)


def check_cell(played: Played | None, cell: CellConfig, seconds: float = 2.0) -> Check:
    """Compare a policy, where there is one, and its cell, and look at the connected robot; nothing moves."""
    check = Check()
    config = played.environment if played else RobotEnvironmentConfig(robot=cell.robot)
    robot = UrRobot(robot_spec(cell.robot), cell, passive=True)
    environment = make_robot_env(config, cell=cell, robot=robot)
    try:
        if played is not None:
            check_contract(check, played.policy.contract, environment.contract())
        check_robot(check, cell, environment, robot, seconds)
    finally:
        environment.close()
    return check


def deploy(request: Request, operator: Operator) -> dict[str, Any]:
    """Do what was asked for; gives the report.

    Raises:
        ConfigError: The request makes no sense.
        LadderError: A rung is missing below.
        RobotError: The robot is no-go, or cannot be reached.
    """
    played = open_checkpoint(request.checkpoint)
    config, cell = scaled(played.environment, request.speed), with_taught(request.cell, request.taught)
    if request.mode == "confirm":
        operator.require_keys()
    check = check_cell(played, cell, 1.0 if request.mode != "check" else 3.0)
    folder = request.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{request.mode}-{played.name}"
    record = Record(folder / FILE)
    try:
        record.add(
            "session", mode=request.mode, checkpoint=str(played.path), digest=played.digest, speed=request.speed,
            override=request.override, contract=dict(played.policy.contract.terms), cell=cell.model_dump(mode="json"),
            check=check.to_json(),
        )  # fmt: skip
        report = {
            "mode": request.mode, "checkpoint": str(played.path), "digest": played.digest, "speed": request.speed,
            "robot": check.facts, "override": request.override, "check": check.to_json(), "record": str(record.path),
        }  # fmt: skip
        ledger, serial = Ledger(request.records), serial_of(check.facts)
        if request.mode == "check":
            fault = check.objection
        else:
            if check.objection is not None:
                raise RobotError(f"no-go: {check.objection}")
            ledger.require(request.mode, serial, played.digest, request.override)
            figures, fault = _play(request, played, config, cell, record, operator)
            report |= figures
        report["fault"] = fault
        if fault is None and _climbed(request.mode, report, config):
            ledger.passed(request.mode, serial, played.digest, record.path, request.speed, request.override)
        elif fault is not None and request.mode in ("confirm", "run"):
            ledger.latch(serial, fault)
        _write(folder / "report.json", report)
    finally:
        record.close()
    return report


def recover(cell: CellConfig, records: Path, activate_gripper: bool) -> dict[str, Any]:
    """Make a robot ready after a fault, at its operator's word: wait 5 s, unlock, upload, arm the watchdog.

    The arm does not move. With ``activate_gripper`` the fingers close and open once.

    Raises:
        RobotError: The cause is still there, or needs hands at the pendant.
    """
    robot = UrRobot(robot_spec(cell.robot), cell)
    try:
        robot.recover(activate_gripper)
        facts, q = robot.facts, robot.read().q.tolist()
    finally:
        robot.close()
    ledger, serial = Ledger(records), serial_of(facts)
    was = ledger.latched(serial)
    ledger.release(serial)
    return {"robot": facts, "q": q, "was": was}


def with_taught(cell: CellConfig, taught: dict[str, TaughtPose]) -> CellConfig:
    """Put objects that a person told of into a cell, in place of its tracker."""
    if not taught:
        return cell
    return cell.model_copy(update={"tracker": None, "taught": {**cell.taught, **taught}})


def _play(
    request: Request,
    played: Played,
    config: RobotEnvironmentConfig,
    cell: CellConfig,
    record: Record,
    operator: Operator,
) -> tuple[dict[str, Any], str | None]:
    shadow = request.mode == "shadow"
    arm = UrRobot(robot_spec(cell.robot), cell, passive=shadow)
    environment = make_robot_env(config, cell=cell, robot=ShadowRobot(arm) if shadow else arm)
    options: dict[str, Any] = {} if request.goal is None else {"goal": request.goal}
    options["stay"] = shadow or request.goal is not None
    session = Session(environment, played.policy.act, record, operator, request.mode)
    try:
        session.run(request.episodes, request.seed, options)
        return {"figures": summarize(session.episodes), "driver": driver_figures(environment)}, session.fault
    finally:
        environment.close()


def driver_figures(environment: RobotEnv) -> dict[str, float]:
    """Ask the driver for its own figures, where its worker still lives."""
    robot = environment.robot
    if not isinstance(robot, UrRobot):
        return {}
    try:
        return robot.figures()
    except RobotError:
        return {}


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
