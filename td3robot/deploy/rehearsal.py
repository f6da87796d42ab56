"""A whole deployment against a stand-in: check, shadow and run through the real driver, beside plain simulation."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from td3robot import seeding
from td3robot.build import make_robot_env, robot_spec
from td3robot.config import DISTURBANCES
from td3robot.deploy.episode import Act, Figures, Player
from td3robot.deploy.lab import LabObjects, LabOperator
from td3robot.deploy.played import Played
from td3robot.deploy.recording import FILE, Record
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session
from td3robot.deploy.speed import scaled
from td3robot.deploy.station import Station
from td3robot.errors import RobotError
from td3robot.robots.findings import Check
from td3robot.robots.physical import PhysicalRobot
from td3robot.standin.labs import RestWatch, Setup, start_lab

# How long the arm is watched after a fault [s].
WATCHED_S = 1.5
# How long the check watches states [s].
CHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be rehearsed.

    Attributes:
        act: A policy in place of the checkpoint's, or None for the checkpoint's own.
        faults, host, stream_hz, late_periods: Of the stand-in and its driver; see :class:`Setup`.
    """

    played: Played
    episodes: int = 20
    seed: int = 12345
    speed: float = 1.0
    faults: Path | None = None
    host: str = "127.0.0.2"
    records: Path = Path("records")
    stream_hz: int | None = None
    act: Act | None = None
    late_periods: float | None = None


class Rehearsal:
    """One rehearsal, with its own stand-in.

    Args:
        plan: What is to be rehearsed.
        say: Called with each sentence about what goes on.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self._say = plan, say
        self._config = scaled(plan.played.environment, plan.speed).model_copy(
            update={"disturbance": DISTURBANCES["off"]}
        )
        self._act = plan.act or plan.played.policy.act
        self.faults: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Do it all, and return the report.

        Raises:
            RobotError: The stand-in did not start, or the check says no-go.
        """
        plan = self.plan
        path = plan.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-rehearse-{plan.played.name}" / FILE
        with start_lab(self._setup()) as self._lab:
            self._operator = LabOperator(self._lab, self._say)
            with self._station() as station:
                station.robot.activate_gripper()
                with closing(Record(path)) as record:
                    check = self._check(station, record)
                    shadow = self._shadow(station, record)
                    self._lab.reset_wire()
                    arm, driver = self._play(station, record)
            wire, clock = self._lab.wire(), self._lab.clock()
        return {
            "checkpoint": str(plan.played.path),
            "speed": plan.speed,
            "record": str(path),
            "check": check.to_json(),
            "shadow": summarize(shadow),
            "arm": summarize(arm),
            "simulation": summarize(self._simulate()),
            "driver": driver,
            "wire": wire,
            "limits": self._limits(),
            "standin_clock": clock,
            "faults": self.faults,
        }

    def _setup(self) -> Setup:
        plan, config = self.plan, self._config
        return Setup(config.robot, config.task.objects(), plan.host, plan.faults, plan.stream_hz, plan.late_periods)

    def _station(self) -> Station:
        cell = self._lab.cell
        names = [item.name for item in self._lab.setup.objects]
        return Station(self._config, cell, LabObjects(cell.objects(names), self._lab) if names else None)

    def _check(self, station: Station, record: Record) -> Check:
        check = station.check(self.plan.played, CHECK_S)
        record.add("check", **check.to_json())
        if check.objection is not None:
            raise RobotError(f"no-go: {check.objection}")
        self._say(f"check: go ({len(check.findings)} findings)")
        return check

    def _shadow(self, station: Station, record: Record) -> list[Figures]:
        session = station.session("shadow", self._act, record, self._operator)
        session.run(1, self.plan.seed, {"stay": True})
        return session.episodes

    def _play(self, station: Station, record: Record) -> tuple[list[Figures], dict[str, float]]:
        """Play the episodes; after a fault, recover as an operator would, and continue with the next episode."""
        session = station.session("run", self._act, record, self._operator, self._lab.begin_episode)
        driver: dict[str, float] = {}
        while len(session.episodes) < self.plan.episodes:
            done = len(session.episodes)
            watch = self._lab.watch() if self.plan.faults else None
            if watch is not None:
                watch.start()
            session.run(self.plan.episodes - done, self.plan.seed, first=done)
            driver = station.figures() or driver
            if watch is not None:
                self._after_fault(session, watch, station.robot)
            elif session.fault is not None:
                break
        return session.episodes, driver

    def _after_fault(self, session: Session, watch: RestWatch, robot: PhysicalRobot) -> None:
        stopped = monotonic()
        sleep(WATCHED_S)
        watch.finish()
        if session.fault is None:
            return
        number = session.episodes[-1].number
        self.faults.append(
            {"episode": number, "said": session.fault, "rest_after_telling_s": watch.rest_after(stopped)}
        )
        self._lab.clear_faults()
        robot.recover(activate_gripper=not self._lab.gripper_ready())

    def _simulate(self) -> list[Figures]:
        """Play the same episodes in plain simulation."""
        environment = make_robot_env(self._config)
        player = Player(environment, self._act)
        found = []
        try:
            for number in range(self.plan.episodes):
                seed = seeding.integer(self.plan.seed, seeding.Stream.EVALUATION_EPISODES, number)
                player.begin(number, seed)
                while not player.step():
                    pass
                found.append(player.figures)
        finally:
            environment.close()
        return found

    def _limits(self) -> dict[str, float]:
        guard = self._config.guard
        speed = robot_spec(self._config.robot).arm.velocity.max()
        return {
            "tcp_speed_m_s": guard.max_tcp_speed_m_s,
            "joint_speed_rad_s": float(speed * guard.joint_speed_fraction),
            "joint_acceleration_rad_s2": guard.max_joint_acceleration_rad_s2,
        }
