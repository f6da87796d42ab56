"""The lines of a record that episodes write: the same for a session on an arm and for an evaluation in simulation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from td3robot.config import RobotEnvironmentConfig
from td3robot.deploy.episode import ArmFigures, ArmPlayer
from td3robot.deploy.ledger import digest_of
from td3robot.deploy.report import Summary
from td3robot.envs.checked import checked
from td3robot.envs.playing import Act, Vector
from td3robot.envs.robot_env import RobotEnv
from td3robot.records import FILE, Record, RecordError, command_to_json, pose_to_json, state_to_json, write_report
from td3robot.robots.guard import GuardDecision
from td3robot.state import JointCommand

# Mode of the record of an evaluation in simulation, where those of a deployment have their stage.
EVALUATION = "eval"


class EpisodeLines:
    """Writes what happens in episodes to a record.

    Args:
        record: The record.
        environment: The task, on an arm or simulated.
        clock: Gives the time of a line [s]; None for the record's own clock.
    """

    def __init__(self, record: Record, environment: RobotEnv, clock: Callable[[], float] | None = None) -> None:
        self._record, self._environment, self._clock = record, environment, clock

    def begin(self, number: int, seed: int, mode: str, options: Mapping[str, Any] | None) -> None:
        """Write that an episode begins; the arm is not at its start yet."""
        self._add("episode", number=number, seed=seed, mode=mode, options=options)

    def goal(self, number: int) -> None:
        """Write what the episode asks for, once the arm is at its start."""
        goal = self._environment.goal
        self._add("goal", number=number, position=goal.position, gripper=goal.gripper)

    def period(
        self,
        figures: ArmFigures,
        observed: Vector,
        action: Vector,
        desired: JointCommand,
        decision: GuardDecision,
        sent: JointCommand,
    ) -> None:
        """Write a control period right after its command was sent; ``total_reward`` is of the periods before it."""
        seen, force = self._environment.seen, self._environment.robot.tool_force()
        self._add(
            "period", episode=figures.number, step=figures.steps, decide_s=figures.decide_s[-1],
            state=state_to_json(seen.robot), observation=observed, action=action,
            wish=command_to_json(desired), command=command_to_json(decision.command), sent=command_to_json(sent),
            reasons=decision.reasons, total_reward=figures.total_reward,
            objects={name: pose_to_json(pose) for name, pose in seen.objects.items()},
            **({} if force is None else {"tool_force": force}),
        )  # fmt: skip

    def end(self, figures: ArmFigures) -> None:
        """Write how an episode ended."""
        self._add(
            "episode_end", number=figures.number, ended=figures.ended, success=figures.success, fault=figures.fault,
            failure=None if figures.failure is None else figures.failure._asdict(), distance_m=figures.distance_m,
            missed_ticks=figures.missed_ticks, total_reward=figures.total_reward,
            state=state_to_json(self._environment.world.robot),
        )  # fmt: skip

    def _add(self, kind: str, **values: Any) -> None:
        if self._clock is not None:
            values["at"] = self._clock()
        self._record.add(kind, **values)


class RecordedPlayer(ArmPlayer):
    """Play in simulation and record every episode; lines have the simulated time since the first one [s].

    Args:
        environment: The simulated environment.
        act: The policy.
        record: Where everything is written.
        title: The environment's title, for what its task may raise.

    Attributes:
        path: The record.
        played_s: Simulated time of all episodes so far [s].
        summary: The figures of the episodes that are over.
    """

    def __init__(self, environment: RobotEnv, act: Act, record: Record, title: str) -> None:
        self._title = title
        self.path, self.summary = record.path, Summary()
        self._lines = EpisodeLines(record, environment, lambda: self.played_s)
        self.played_s = 0.0
        super().__init__(environment, act, self._lines.period)

    def begin(self, number: int, seed: int, options: dict[str, Any] | None = None) -> ArmFigures:
        """Begin an episode."""
        self._lines.begin(number, seed, EVALUATION, options)
        with checked(self._title, "reset"):
            figures = super().begin(number, seed, options)
        self._lines.goal(number)
        return figures

    def step(self) -> bool:
        """Play one control period, and return whether the episode is over."""
        robot = self.environment.robot
        before = robot.now()
        with checked(self._title, "step"):
            over = super().step()
        self.played_s += robot.now() - before  # the simulation's own clock may restart with an episode
        if over:
            self._lines.end(self.figures)
            self.summary.add(self.figures)
        return over


@contextmanager
def recorded_evaluation(
    records: Path,
    checkpoint: Path,
    name: str,
    speed: float,
    config: RobotEnvironmentConfig,
    environment: RobotEnv,
    act: Act,
) -> Iterator[RecordedPlayer]:
    """Record an evaluation in simulation into a folder of its own, with a report once it is over.

    Args:
        records: Directory of records.
        checkpoint: The policy's checkpoint.
        name: Its name, for the folder.
        speed: Factor on every speed and acceleration limit.
        config: What the environment was built from.
        environment: The simulated environment.
        act: The policy.

    Raises:
        RecordError: The record cannot be written.
    """
    folder = records / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{EVALUATION}-{name}"
    about = {"checkpoint": str(checkpoint), "digest": digest_of(checkpoint), "speed": speed, "override": None}
    with closing(Record(folder / FILE)) as record:
        record.begin(
            EVALUATION, at=0.0, **about, contract=dict(environment.contract().terms),
            cell={"robot": config.robot.model_dump(mode="json")},
        )  # fmt: skip
        player = RecordedPlayer(environment, act, record, config.title)
        try:
            yield player
            record.add("rest", at=player.played_s, state=state_to_json(environment.world.robot))
        except RecordError as error:
            raise RecordError(f"the evaluation ended early: {error}") from None
        record.flush()
    figures = player.summary.to_json()
    write_report(folder, {"mode": EVALUATION} | about | {"record": str(record.path), "figures": figures, "fault": None})
