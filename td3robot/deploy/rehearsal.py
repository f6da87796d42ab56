"""A whole deployment against a stand-in: check, shadow and run through the real client, beside plain simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from td3robot import seeding
from td3robot.build import make_robot_env, robot_spec
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.config.cell import CellConfig
from td3robot.deploy.bench import BenchObjects, BenchOperator
from td3robot.deploy.check import Check, check_contract, check_robot
from td3robot.deploy.deployment import Played, driver_figures
from td3robot.deploy.episode import Act, Figures, Player
from td3robot.deploy.recording import FILE, Record
from td3robot.deploy.report import summarize
from td3robot.deploy.session import Session
from td3robot.deploy.shadow import ShadowRobot
from td3robot.deploy.speed import scaled
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import RobotError
from td3robot.robots.interface import Robot
from td3robot.robots.tracker import ObjectTracker
from td3robot.robots.ur.robot import UrRobot
from td3robot.standin.fault_kinds import load_faults
from td3robot.standin.process import start_standin
from td3robot.standin.watch import RestWatch
from td3robot.tasks.grasp import OBJECT, GraspConfig

TRACKER_PORT = 47300
# After a fault the arm is watched for so long [s].
WATCHED_S = 1.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be rehearsed.

    Attributes:
        act: A policy in place of the checkpoint's; None is the checkpoint's.
        faults: A file of faults for the stand-in, or None.
        host: The stand-in's address.
        late_periods: See ``UrConfig``; more is for computers that are busy with other things.
    """

    played: Played
    episodes: int = 20
    seed: int = 12345
    speed: float = 1.0
    faults: Path | None = None
    host: str = "127.0.0.2"
    records: Path = Path("records")
    rtde_rate_hz: int = 125
    act: Act | None = None
    late_periods: float = 2.5


class Rehearsal:
    """One rehearsal, with its own stand-in.

    Args:
        plan: What.
        say: Told what goes on, in sentences.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self._say = plan, say
        self._config = scaled(plan.played.environment, plan.speed).model_copy(
            update={"disturbance": DISTURBANCES["off"]}
        )
        self._act = plan.act or plan.played.policy.act
        self.faults: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Do it all; gives the report.

        Raises:
            RobotError: The stand-in did not start, or the check says no-go.
        """
        plan = self.plan
        path = plan.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-rehearse-{plan.played.name}" / FILE
        with start_standin(plan.host, **self._standin_settings()) as self._standin:
            self._cell = self._make_cell()
            self._operator = BenchOperator(self._standin, self._say)
            UrRobot(robot_spec(self._cell.robot), self._cell).gripper.activate()
            record = Record(path)
            try:
                check = self._check(record)
                shadow, _ = self._play(record, "shadow")
                self._standin.ask(reset_wire=True)
                arm, driver = self._play(record, "run")
            finally:
                record.close()
            state = self._standin.state()
        simulation = self._simulate()
        return {
            "checkpoint": str(plan.played.path),
            "speed": plan.speed,
            "record": str(path),
            "check": check.to_json(),
            "shadow": summarize(shadow),
            "arm": summarize(arm),
            "simulation": summarize(simulation),
            "driver": driver,
            "wire": state["wire"],
            "limits": self._limits(),
            "standin_clock": state["clock"],
            "faults": self.faults,
        }

    def _standin_settings(self) -> dict[str, Any]:
        config, plan = self._config, self.plan
        settings: dict[str, Any] = {"robot": config.robot}
        if isinstance(config.task, GraspConfig):
            settings |= {"objects": {OBJECT: config.task.object}, "tracker": f"{plan.host}:{TRACKER_PORT}"}
        if plan.faults is not None:
            settings["faults"] = load_faults(plan.faults)
        return settings

    def _make_cell(self) -> CellConfig:
        robot = self._config.robot
        values: dict[str, Any] = {
            "robot": robot.model_dump() | {"backend": "ur"},
            "ur": {
                "host": self.plan.host,
                "rtde_rate_hz": self.plan.rtde_rate_hz,
                "late_periods": self.plan.late_periods,
            },
        }
        if self._standin.config.objects:
            values["tracker"] = {"host": self.plan.host, "port": TRACKER_PORT}
        return CellConfig.model_validate(values)

    def _environment(self, robot: Robot, config: RobotEnvironmentConfig) -> RobotEnv:
        objects = None
        if self._cell.tracker is not None:
            objects = BenchObjects(ObjectTracker(self._standin.config.objects, self._cell.tracker), self._standin)
        return make_robot_env(config, cell=self._cell, objects=objects, robot=robot)

    def _arm(self, passive: bool = False) -> UrRobot:
        return UrRobot(robot_spec(self._cell.robot), self._cell, passive)

    def _check(self, record: Record) -> Check:
        """Hold the checkpoint's contract against the stand-in's cell, as trained: at full speed."""
        robot, check = self._arm(passive=True), Check()
        environment = self._environment(robot, self.plan.played.environment)
        try:
            check_contract(check, self.plan.played.policy.contract, environment.contract())
            check_robot(check, self._cell, environment, robot)
        finally:
            environment.close()
        record.add("check", **check.to_json())
        if check.objection is not None:
            raise RobotError(f"no-go: {check.objection}")
        self._say(f"check: go ({len(check.findings)} findings)")
        return check

    def _play(self, record: Record, mode: str) -> tuple[list[Figures], dict[str, float]]:
        """Play the episodes of a rung; after a fault, recover as an operator would, and go on with the next."""
        arm = self._arm(passive=mode == "shadow")
        robot = ShadowRobot(arm) if mode == "shadow" else arm
        environment = self._environment(robot, self._config)
        announce = self._standin.begin_episode if mode == "run" else lambda number: None
        session = Session(environment, self._act, record, self._operator, mode, announce)
        options = {"stay": True} if mode == "shadow" else None
        episodes = 1 if mode == "shadow" else self.plan.episodes
        driver: dict[str, float] = {}
        try:
            while len(session.episodes) < episodes:
                done = len(session.episodes)
                watch = RestWatch(self._standin) if self.plan.faults and mode == "run" else None
                if watch is not None:
                    watch.start()
                session.run(episodes - done, self.plan.seed, options, first=done)
                driver = driver_figures(environment) or driver
                if watch is not None:
                    self._after_fault(session, watch, arm)
                elif session.fault is not None:
                    break
        finally:
            environment.close()
        return session.episodes, driver

    def _after_fault(self, session: Session, watch: RestWatch, arm: UrRobot) -> None:
        stopped = monotonic()
        sleep(WATCHED_S)
        watch.finish()
        if session.fault is None:
            return
        number = session.episodes[-1].number
        self.faults.append(
            {"episode": number, "said": session.fault, "rest_after_telling_s": watch.rest_after(stopped)}
        )
        self._standin.ask(clear_faults=True, emergency_stop=False, remote=True, speed_slider=1.0)
        if self._standin.state()["safety_mode"] != "PROTECTIVE_STOP":
            self._standin.reset(self._standin.state()["q"])
        arm.close()
        if self._standin.state()["gripper"]["STA"] != 3:
            arm.gripper.activate()
        arm.recover()

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
