"""A whole deployment against a stand-in: check, shadow and run through the real driver, beside plain simulation."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

from td3robot.build import make_robot_env, object_bounds, robot_spec
from td3robot.config import DISTURBANCES, RobotConfig
from td3robot.config.objects import ObjectConfig
from td3robot.deploy.episode import ArmFigures, ArmPlayer
from td3robot.deploy.loaded_policy import LoadedPolicy, scaled
from td3robot.deploy.report import summarize
from td3robot.deploy.scripted_operator import PlacedObjects, ScriptedOperator
from td3robot.deploy.session import Session
from td3robot.deploy.station import Station
from td3robot.deploy.tracker_figures import compared
from td3robot.envs.playing import Act, play_episodes
from td3robot.errors import CameraError, RobotError, require_extra
from td3robot.records import FILE, Record, write_report
from td3robot.robots.interface import require_same_arm
from td3robot.robots.physical import Check, PhysicalRobot
from td3robot.simulators.cell_camera import Eyes, tags_of
from td3robot.simulators.presets import NOMINAL, Preset
from td3robot.simulators.process import StandstillMonitor, free_host
from td3robot.simulators.sessions import SimulatorConfig, session_of, start_session

# Mode in a rehearsal's record and report, where those of a deployment have their stage.
MODE = "rehearse"
# How long the arm is watched after a fault [s].
WATCHED_S = 1.5
# How long the check watches states [s].
CHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rehearse.

    Attributes:
        robot: The robot of the cell to rehearse in, with its table and coupling, or None for the policy's own.
        item: The object on the table, or None for the policy's own; for a policy for any object, one of middling size.
        act: A policy in place of the checkpoint's, or None for the checkpoint's own.
        faults, host, stream_hz, timeout_scale, preset: Settings of the stand-in and its driver; see
            :class:`SimulatorConfig`. Without a host, the stand-in uses a free loopback address.
        eyes: Whether objects are seen with a simulated camera; otherwise the simulator tells their poses.
        on_record: Called with the record's path once it has begun, before anything moves.
    """

    loaded: LoadedPolicy
    episodes: int = 20
    seed: int = 12345
    speed: float = 1.0
    faults: Path | None = None
    host: str | None = None
    records: Path = Path("records")
    stream_hz: int | None = None
    act: Act | None = None
    timeout_scale: float = 1.0
    preset: Preset = NOMINAL
    robot: RobotConfig | None = None
    item: ObjectConfig | None = None
    eyes: bool = False
    on_record: Callable[[Path], None] = lambda path: None


class Rehearsal:
    """One rehearsal, with its own stand-in.

    Args:
        plan: What to rehearse.
        say: Called with each sentence about the progress.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self._say = plan, say
        config = scaled(plan.loaded.environment, plan.speed).model_copy(update={"disturbance": DISTURBANCES["off"]})
        self._item = plan.item or config.task.typical
        robot = config.robot
        if plan.robot is not None:
            require_same_arm(robot, plan.robot, "cell")
            robot = plan.robot.in_simulation(robot)
        config = config.in_cell(robot, self._item)
        self._config = config
        self._act = plan.act or plan.loaded.policy.act
        self.faults: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Run the whole rehearsal, and return the report.

        Raises:
            MissingExtraError: The robot's driver is not installed.
            ConfigError: A camera is wanted, and the task has nothing that it could see.
            RobotError: The stand-in did not start, or the check says no-go.
        """
        plan = self.plan
        session_of(self._config.robot.arm).cell_type.require_driver()
        if plan.eyes:
            require_extra("vision", "rehearsing with a camera", "cv2")
            tags_of(self._config.task.objects())
        folder = plan.records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-rehearse-{plan.loaded.name}"
        setup = self._setup(folder)
        self._say(f"starting a simulated controller of the {self._config.robot.arm} on {setup.host}")
        with start_session(setup) as self._lab:
            if self._lab.camera is not None:
                self._say(str(self._lab.camera))
            self._operator = ScriptedOperator(self._lab, self._say)
            with self._station() as station:
                station.robot.activate_gripper()
                with closing(Record(folder / FILE)) as record:
                    self._begin_record(record)
                    check = self._check(station, record)
                    shadow = self._shadow(station, record)
                    self._lab.reset_wire()
                    arm, driver = self._play(station, record)
                    tracker = self._tracker(station, record)
            wire, clock = self._lab.wire(), self._lab.clock()
        trained = plan.loaded.environment.disturbance
        report = {
            "mode": MODE,
            "checkpoint": str(plan.loaded.path),
            "cell": {"name": plan.preset.name, "differs": plan.preset.differences()},
            "speed": plan.speed,
            "record": str(folder / FILE),
            "check": check.to_json(),
            "shadow": summarize(shadow),
            "arm": summarize(arm, trained),
            "simulation": summarize(self._simulate(), trained),
            "driver": driver,
            "tracker": tracker,
            "wire": wire,
            "limits": self._limits(),
            "standin_clock": clock,
            "faults": self.faults,
        }
        write_report(folder, report)
        return report

    def _begin_record(self, record: Record) -> None:
        loaded = self.plan.loaded
        record.begin(
            MODE, checkpoint=str(loaded.path), digest=loaded.digest, speed=self.plan.speed, override=None,
            contract=dict(loaded.policy.contract.terms), cell=self._lab.cell.model_dump(mode="json"),
        )  # fmt: skip
        self.plan.on_record(record.path)

    def _setup(self, folder: Path) -> SimulatorConfig:
        plan, config = self.plan, self._config
        bounds = object_bounds(config, robot_spec(config.robot))
        eyes = Eyes(folder, bounds.patch, plan.seed) if plan.eyes else None
        host = plan.host or free_host(session_of(config.robot.arm).ports)
        return SimulatorConfig(
            config.robot, config.task.objects(), host, plan.faults, plan.stream_hz, plan.timeout_scale, plan.preset,
            eyes,
        )  # fmt: skip

    def _station(self) -> Station:
        cell = self._lab.cell.model_copy(update={"object": self._item})
        self._placed: PlacedObjects | None = None
        if self._lab.config.objects:
            seen = cell.objects(object_bounds(self._config, robot_spec(cell.robot)))
            self._placed = PlacedObjects(seen, self._lab)
        return Station(self._config, cell, self._placed)

    def _check(self, station: Station, record: Record) -> Check:
        check = station.check(self.plan.loaded, CHECK_S)
        record.add("check", **check.to_json())
        if check.objection is not None:
            raise RobotError(f"no-go: {check.objection}")
        self._say(f"check: go ({len(check.findings)} checks)")
        return check

    def _shadow(self, station: Station, record: Record) -> list[ArmFigures]:
        self._say("shadow: one episode is decided, and nothing is sent")
        session = station.session("shadow", self._act, record, self._operator)
        session.run(1, self.plan.seed, {"stay": True})
        return session.episodes

    def _play(self, station: Station, record: Record) -> tuple[list[ArmFigures], dict[str, float]]:
        """Play the episodes; after a fault, recover as an operator would and continue with the next episode."""
        episodes, seconds = self.plan.episodes, self._config.episode_s
        self._say(f"run: {episodes} episodes of {seconds:g} s in real time, plus the moves to their starts")
        session = station.session("run", self._act, record, self._operator, self._lab.begin_episode)
        driver: dict[str, float] = {}
        while len(session.episodes) < self.plan.episodes:
            done = len(session.episodes)
            watch = self._lab.standstill_monitor() if self.plan.faults else None
            if watch is not None:
                watch.start()
            session.run(self.plan.episodes - done, self.plan.seed, first=done)
            driver = station.figures() or driver
            if watch is not None:
                self._after_fault(session, watch, station.robot)
            elif session.fault is not None:
                break
        return session.episodes, driver

    def _tracker(self, station: Station, record: Record) -> dict[str, Any] | None:
        """Return the figures of a tracker that sees with the lab's camera, and record them; otherwise None."""
        camera, own = self._lab.camera, station.tracker_figures()
        if camera is None or own is None or self._placed is None:
            return None
        try:
            shots = camera.shots()
        except CameraError as error:
            self._say(f"poses cannot be compared with the truth: {error}")
            shots = []
        figures = own | {"camera": camera.to_json()} | compared(self._placed.sightings, shots)
        record.add("tracker", **figures)
        return figures

    def _after_fault(self, session: Session, watch: StandstillMonitor, robot: PhysicalRobot) -> None:
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

    def _simulate(self) -> list[ArmFigures]:
        """Play the same episodes in plain simulation."""
        self._say(f"plain simulation: the same {self.plan.episodes} episodes, without the controller")
        environment = make_robot_env(self._config)
        try:
            found = play_episodes(ArmPlayer(environment, self._act), self.plan.episodes, self.plan.seed)
            return cast("list[ArmFigures]", found)
        finally:
            environment.close()

    def _limits(self) -> dict[str, float]:
        guard = self._config.guard
        speed = robot_spec(self._config.robot).arm.velocity.max()
        return {
            "tcp_speed_m_s": guard.max_tcp_speed_m_s,
            "joint_speed_rad_s": float(speed * guard.joint_speed_fraction),
            "joint_acceleration_rad_s2": guard.max_joint_acceleration_rad_s2,
        }
