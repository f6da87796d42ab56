"""Episodes on an arm: played, watched by an operator, recorded, and stopped in order whatever happens."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from td3robot import seeding
from td3robot.deploy.episode import Act, Figures, Player, Vector
from td3robot.deploy.operator import Operator, OperatorStop
from td3robot.deploy.recording import Record, RecordError, command_to_json, state_to_json
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.robots.guard import Ruling
from td3robot.robots.interface import Robot
from td3robot.robots.travel import TravelPlan
from td3robot.state import JointCommand, RobotState

MODES = ("check", "shadow", "confirm", "run")
# How often the announcer looks for a fault [s].
LOOK_S = 0.05


class Session:
    """Some episodes of one policy on one arm.

    Args:
        environment: The task on the arm; for ``shadow``, on a :class:`ShadowRobot`.
        act: The policy.
        record: Where everything is written.
        operator: Who agrees to motions, and stops the arm.
        mode: ``shadow``, ``confirm`` or ``run``.
        on_episode: Called with the number of each episode, when the arm is at its start.

    Attributes:
        episodes: Figures of the episodes so far.
        fault: What ended the session, or None.
    """

    def __init__(
        self,
        environment: RobotEnv,
        act: Act,
        record: Record,
        operator: Operator,
        mode: str,
        on_episode: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.environment, self.mode, self.episodes = environment, mode, list[Figures]()
        self.fault: str | None = None
        self._record, self._operator, self._on_episode = record, operator, on_episode
        self._player = Player(environment, act, self._record_period)
        self._agreed = False
        environment.travel.agree = self._agree
        environment.travel.watch = self._travelled

    def run(self, episodes: int, seed: int, options: dict[str, Any] | None = None, first: int = 0) -> None:
        """Play episodes until all are done, the operator stops them, or a fault does. The arm rests afterwards.

        Args:
            episodes: How many.
            seed: Each episode's own seed is derived from it, as in an evaluation.
            options: Those of :meth:`RobotEnv.reset`.
            first: The number of the first of them.

        Raises:
            ConfigError: The options ask for something impossible.
            RobotError: The robot cannot be opened.
        """
        self.fault = None
        gc.collect()
        gc.freeze()  # later collections skip what exists now, and are short; a station undoes this
        self.environment.robot.connect()  # what fails here has moved nothing
        announcer = FaultAnnouncer(self.environment.robot, self._operator)
        gc.disable()  # a collection takes longer than a policy's step, and no thread runs meanwhile
        announcer.start()
        try:
            for number in range(first, first + episodes):
                self._play(number, seeding.integer(seed, seeding.Stream.EVALUATION_EPISODES, number), options)
                gc.collect()
        except OperatorStop as stop:
            self._finish("operator", None, str(stop))
        except ConfigError:
            raise  # an impossible request is not a fault of the arm
        except Td3RobotError as error:
            self._finish("fault", self._cause(error), str(error))
        finally:
            self.environment.robot.stop()
            announcer.stop()
            gc.enable()
            self._close_record()

    def _play(self, number: int, seed: int, options: dict[str, Any] | None) -> None:
        self._operator.raise_if_stopped()
        self.episodes.append(Figures(number, seed))
        self._record.add("episode", number=number, seed=seed, mode=self.mode, options=options)
        self.episodes[-1] = self._player.begin(number, seed, options)
        goal = self.environment.goal
        self._record.add("goal", number=number, position=goal.position, gripper=goal.gripper)
        self._on_episode(number)
        self._player.resume()  # the state is as old as the way here and the announcement took
        {"run": self._run, "confirm": self._confirm, "shadow": self._shadow}[self.mode]()
        figures = self.episodes[-1]
        self._record.add(
            "episode_end", number=number, ended=figures.ended, success=figures.success, fault=figures.fault,
            distance_m=figures.distance_m, missed_ticks=figures.missed_ticks,
            state=state_to_json(self.environment.world.robot),
        )  # fmt: skip
        self._record.flush()
        self._operator.say(_line(figures))
        if figures.fault is not None:
            self.fault = figures.fault

    def _run(self) -> None:
        while not self._player.step():
            self._operator.raise_if_stopped()

    def _confirm(self) -> None:
        """Move for as long as each key press allows, and rest in between."""
        rate = round(self.environment.robot.spec.control_rate_hz)
        over = False
        while not over:
            self.environment.robot.stop()
            periods = self._operator.next_periods(rate)
            self._player.resume()
            for _ in range(periods):
                if over := self._player.step():
                    break
                self._operator.raise_if_stopped()

    def _shadow(self) -> None:
        """Decide in every period as if the arm passed where it stands, at the speed it would have reached by then."""
        guard = self.environment.guard
        rate = round(self.environment.robot.spec.control_rate_hz)
        over = False
        while not over:
            over = self._player.step()
            if self._player.figures.steps % rate == 0:
                self._say_what_would_move()
            velocity = guard.velocity
            self._player.resume()
            guard.velocity = velocity
            self._operator.raise_if_stopped()

    def _say_what_would_move(self) -> None:
        environment = self.environment
        way = environment.tool_at(self._sent.q).position - environment.world.tcp.position
        x, y, z = way / environment.robot.spec.period_s * 1e3
        changed = ", ".join(sorted(set(self._player.figures.reasons) - {"any"})) or "nothing"
        self._operator.say(f"would move the tool at ({x:+.0f}, {y:+.0f}, {z:+.0f}) mm/s; the guard changes: {changed}")

    def _agree(self, journey: TravelPlan) -> None:
        if journey.drops:
            self._operator.take("the gripper holds something and is going to open: take hold of it")
        if not self._agreed:
            largest = float(np.abs(journey.way[0] - journey.start).max())
            self._operator.agree(
                f"the arm is going to move to its start, by {largest:.2f} rad in its first leg of {len(journey.way)}"
                + (", and its gripper opens" if journey.opens_gripper else "")
            )
            self._agreed = True

    def _travelled(self, state: RobotState, ruling: Ruling) -> None:
        self._record.add(
            "travel", state=state_to_json(state), command=command_to_json(ruling.command), reasons=ruling.reasons
        )
        self._operator.raise_if_stopped()

    def _record_period(
        self, figures: Figures, observed: Vector, action: Vector, wish: JointCommand, ruling: Ruling, sent: JointCommand
    ) -> None:
        self._sent = sent
        self._record.add(
            "period", episode=figures.number, step=figures.steps, decide_s=figures.decide_s[-1],
            state=state_to_json(self.environment.seen.robot), observation=observed, action=action,
            wish=command_to_json(wish), command=command_to_json(ruling.command), sent=command_to_json(sent),
            reasons=ruling.reasons,
        )  # fmt: skip

    def _cause(self, error: Td3RobotError) -> str:
        """Prefer the driver's fault: the error that arrived here may be a consequence of it."""
        first = self.environment.robot.fault
        return str(error) if first is None or isinstance(error, RecordError) else first

    def _finish(self, ended: str, fault: str | None, said: str) -> None:
        """Stop the arm first, then record why."""
        self.environment.robot.stop()
        self.fault = fault
        if self.episodes and not self.episodes[-1].ended:
            if self._player.figures.number == self.episodes[-1].number:
                self.episodes[-1] = self._player.figures
            self.episodes[-1].ended, self.episodes[-1].fault = ended, fault
            self.episodes[-1].success = False
        self._operator.say(said)
        try:
            self._record.add("stop", ended=ended, fault=fault)
        except RecordError as error:
            self._operator.say(str(error))

    def _close_record(self) -> None:
        """Record where the arm rests, as far as that is known."""
        try:
            self._record.add("rest", state=state_to_json(self.environment.robot.read()))
        except RecordError as error:
            self.fault = self.fault or str(error)
        except Td3RobotError as error:
            self._record.add("rest", unknown=str(error))
        self._record.flush()


class FaultAnnouncer(threading.Thread):
    """Announces a fault of the robot at once, even while the policy hangs and nobody asks the robot."""

    def __init__(self, robot: Robot, operator: Operator) -> None:
        super().__init__(name="fault-announcer", daemon=True)
        self._robot, self._operator = robot, operator
        self._stopping = threading.Event()

    def run(self) -> None:
        """Look until there is a fault to announce."""
        while not self._stopping.wait(LOOK_S):
            if (fault := self._robot.fault) is not None:
                self._operator.say(f"FAULT: {fault}")
                return

    def stop(self) -> None:
        """End, and wait for the end."""
        self._stopping.set()
        self.join()


def _line(figures: Figures) -> str:
    distance = "" if figures.distance_m is None else f", {1e3 * figures.distance_m:.1f} mm left"
    return (
        f"episode {figures.number}: {'success' if figures.success else 'no success'}{distance}, "
        f"{figures.steps} periods, {figures.missed_ticks} missed, guard changed {figures.reasons['any']}"
        + (f"; FAULT: {figures.fault}" if figures.fault else "")
    )
