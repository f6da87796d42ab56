"""Episodes on an arm: played, watched by an operator, recorded, and stopped in good order whatever happens."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from td3robot import seeding
from td3robot.deploy.episode import ArmFigures, ArmPlayer
from td3robot.deploy.operator import Operator, OperatorStop
from td3robot.deploy.recorded import EpisodeLines
from td3robot.envs.playing import Act, Vector
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import ConfigError, Td3RobotError
from td3robot.format import distance_left, failure_kind
from td3robot.processes import tune_gc
from td3robot.records import Record, RecordError, command_to_json, state_to_json
from td3robot.robots.guard import GuardDecision
from td3robot.robots.interface import Robot
from td3robot.robots.objects import rest_heights
from td3robot.robots.travel import TravelPlan
from td3robot.state import Array, JointCommand, RobotState, World

MODES = ("check", "shadow", "confirm", "run")
# How often the announcer checks for a fault [s].
POLL_INTERVAL_S = 0.05
# Why a second stop signal, which ends the program wherever it is, is a fault.
ENDED_AT_ONCE = "a second stop signal ended the program at once; the arm was told to stop, and nobody saw it rest"
# A step of the tool below this is none [m].
NO_STEP_M = 1e-6


class Session:
    """Episodes of one policy on one arm.

    Args:
        environment: The task on the arm; for ``shadow``, on a :class:`ShadowRobot`.
        act: The policy.
        record: Where everything is written.
        operator: Agrees to motions, and stops the arm.
        mode: ``shadow``, ``confirm`` or ``run``.
        on_episode: Called with the number of each episode, when the arm is at its start.

    Attributes:
        episodes: Figures of the episodes so far.
        fault: The fault that ended the session, or None.
        on_fault: Called with every fault, after the arm is told to stop and before anything is shown or recorded.
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
        self.environment, self.mode, self.episodes = environment, mode, list[ArmFigures]()
        self.fault: str | None = None
        self.on_fault: Callable[[str], None] = lambda fault: None
        self._record, self._operator, self._on_episode = record, operator, on_episode
        self._lines = EpisodeLines(record, environment)
        self._player = ArmPlayer(environment, act, self._record_period)
        self._agreed, self._which, self._shadowed, self._gripper = False, "the episode", "", ""
        self._announced, self._trouble, self._announcing = "", "", threading.Lock()
        environment.travel.agree = self._agree
        environment.travel.watch = self._travelled

    def run(self, episodes: int, seed: int, options: dict[str, Any] | None = None, first: int = 0) -> None:
        """Play episodes until all are done, or the operator or a fault stops them. The arm rests afterwards.

        Args:
            episodes: How many.
            seed: Each episode's own seed is derived from it, as in an evaluation.
            options: Options for :meth:`RobotEnv.reset`.
            first: The number of the first episode.

        Raises:
            ConfigError: The options ask for something impossible.
            RobotError: The robot cannot be opened.
        """
        self.fault, self._announced = None, ""
        tune_gc()
        self.environment.robot.connect()  # a failure here has moved nothing
        announcer = FaultAnnouncer(self.environment.robot, self._announce)
        gc.disable()  # a collection takes longer than a policy's step, and blocks all threads
        announcer.start()
        try:
            for number in range(first, first + episodes):
                self._which = f"episode {number + 1} of {first + episodes}"
                self._play(number, seeding.integer(seed, seeding.Stream.EVALUATION_EPISODES, number), options)
                gc.collect()
            self._offer_to_put_down()
        except OperatorStop as stop:
            self._finish("operator", None, str(stop))
        except KeyboardInterrupt:
            self._finish("fault", ENDED_AT_ONCE)
            raise
        except ConfigError:
            raise  # an impossible request is not a fault of the arm
        except Td3RobotError as error:
            cause = self._cause(error)
            self._finish("fault", cause)
        finally:
            self.environment.robot.stop()
            announcer.stop()
            gc.enable()
            self._close_record()

    def _play(self, number: int, seed: int, options: dict[str, Any] | None) -> None:
        self._operator.raise_if_stopped()
        self.episodes.append(ArmFigures(number, seed))
        self._lines.begin(number, seed, self.mode, options)
        self.episodes[-1] = self._player.begin(number, seed, options)
        self._lines.goal(number)
        self._on_episode(number)
        self._operator.say(self._which)
        self._player.resume()  # the state dates from before the travel and the announcement
        {"run": self._run, "confirm": self._confirm, "shadow": self._shadow}[self.mode]()
        figures = self.episodes[-1]
        if self.mode == "shadow":
            figures.success = figures.failure = None  # nothing was sent, so nothing can succeed or fail
        trouble = self._latch(figures.fault) if figures.fault is not None else ""
        self._lines.end(figures)
        self._record.flush()
        self._operator.say(_line(figures, self.mode))
        self._say_trouble(trouble)

    def _run(self) -> None:
        while not self._player.step():
            self._tell_gripper()
            self._operator.raise_if_stopped()

    def _confirm(self) -> None:
        """Move for as long as each key press allows, and rest in between."""
        environment = self.environment
        rate = environment.robot.spec.control_rate_hz
        over = False
        while not over:
            self._player.resume()
            ahead = self._in_words(*self._player.ahead())
            before, periods = environment.world, self._operator.next_periods(rate, ahead)
            self._record.add("operator", did="let the arm move", periods=periods)
            self._player.resume()
            for _ in range(periods):
                if over := self._player.step():
                    break
                self._tell_gripper()
                self._operator.raise_if_stopped()
            environment.robot.stop()
            self._operator.say(self._moved(before))

    def _tell_gripper(self) -> None:
        """Say and record why the gripper does not do what the policy intends, once each time."""
        words = self.environment.gripper_message
        if words and words != self._gripper:
            self._operator.say(words)
            self._record.add("gripper", said=words)
        self._gripper = words

    def _moved(self, before: World) -> str:
        """Format what a key press moved, now that the arm has stopped."""
        environment = self.environment
        now, remaining = environment.tool_at(environment.robot.read().q).position, self._player.figures.distance_m
        return f"the tool moved by {_mm(now - before.tcp.position, '+.0f')} mm and is at {_mm(now)} mm" + (
            "" if remaining is None else f", {1e3 * remaining:.0f} mm from the goal"
        )

    def _in_words(self, command: JointCommand, reasons: tuple[str, ...]) -> str:
        """Format what the policy wants from where the arm stands: a direction, and the gripper."""
        environment = self.environment
        step = environment.tool_at(command.q).position - environment.world.tcp.position
        closed = f"the gripper {100 * command.gripper:.0f} % closed"
        changed = f"; the guard changes: {', '.join(sorted(reasons))}" if reasons else ""
        return f"next the tool goes {_direction(step)}, with {closed}{changed}"

    def _offer_to_put_down(self) -> None:
        """Offer to lower what the gripper holds once the last episode is over."""
        robot = self.environment.robot
        if self.mode == "shadow" or self.fault is not None or not robot.holds:
            return
        drop = self._drop_m()
        where = f"lower it by {1e3 * drop:.0f} mm, open" if drop > 0.0 else "open where it is"
        if self._operator.accepts(f"the gripper still holds something; {where}, and go back up?"):
            self._record.add("operator", did="agreed to put down what the gripper holds", drop_m=drop)
            self.environment.travel.put_down(drop)
        else:
            self._operator.say("the gripper still holds something; td3robot gripper open --robot CELL lets it go")

    def _drop_m(self) -> float:
        """Return how far the object nearest to the tool is above where it would lie on the table [m]; 0 without one."""
        environment = self.environment
        poses, tool = environment.seen.objects, environment.world.tcp.position
        if not poses:
            return 0.0
        name = min(poses, key=lambda each: float(np.linalg.norm(poses[each].position - tool)))
        rests = rest_heights(environment.batch.setting.objects, environment.robot.spec.table_height_m)
        return max(0.0, float(poses[name].position[2]) - rests[name])

    def _shadow(self) -> None:
        """Decide in every period as if the arm passed its posture at the speed that it would have reached by then."""
        guard = self.environment.guard
        rate = round(self.environment.robot.spec.control_rate_hz)
        over = False
        while not over:
            over = self._player.step()
            if self._player.figures.steps % rate == 0:
                self._say_what_would_move()
            self._player.resume(guard.velocity)
            self._operator.raise_if_stopped()

    def _say_what_would_move(self) -> None:
        environment = self.environment
        way = environment.tool_at(self._sent.q).position - environment.world.tcp.position
        x, y, z = way / environment.robot.spec.period_s * 1e3
        changed = ", ".join(sorted(set(self._player.figures.reasons) - {"any"})) or "nothing"
        said = f"would move the tool at ({x:+.0f}, {y:+.0f}, {z:+.0f}) mm/s; the guard changes: {changed}"
        if said != self._shadowed:
            self._shadowed = said
            self._operator.say(said)

    def _agree(self, journey: TravelPlan) -> None:
        if journey.drops:
            self._operator.take("the gripper holds something and is going to open: take hold of it")
            self._record.add("operator", did="took what the gripper held")
        if not self._agreed:
            self._operator.agree(_way_in_words(journey))
            self._agreed = True
            self._record.add("operator", did="agreed to the way to the start")
        self._operator.say(f"travelling to the start of {self._which}")

    def _travelled(self, state: RobotState, decision: GuardDecision) -> None:
        self._record.add(
            "travel", state=state_to_json(state), command=command_to_json(decision.command), reasons=decision.reasons
        )
        self._operator.raise_if_stopped()

    def _record_period(
        self,
        figures: ArmFigures,
        observed: Vector,
        action: Vector,
        desired: JointCommand,
        decision: GuardDecision,
        sent: JointCommand,
    ) -> None:
        self._sent = sent
        self._lines.period(figures, observed, action, desired, decision, sent)

    def _cause(self, error: Td3RobotError) -> str:
        """Stop the arm and return why: the driver's reason first, since an error raised here may follow from it."""
        robot = self.environment.robot
        known = robot.fault
        robot.stop()  # meanwhile, the driver can report what it knows
        if isinstance(error, RecordError):
            return str(error) if self.mode == "shadow" else f"the arm was stopped: {error}"
        if robot.fault is None:
            return str(error)
        return robot.fault if known is not None else f"{robot.fault} (and: {error})"

    def _finish(self, ended: str, fault: str | None, said: str = "") -> None:
        """Stop the arm first, then latch, then record and show why."""
        self.environment.robot.stop()
        trouble = self._latch(fault) if fault is not None else ""
        if self.episodes and not self.episodes[-1].ended:
            if self._player.figures.number == self.episodes[-1].number:
                self.episodes[-1] = self._player.figures
            self.episodes[-1].ended, self.episodes[-1].fault = ended, fault
            self.episodes[-1].success = None if self.mode == "shadow" or self._ended_by_choice(ended) else False
        if fault is None:
            self._operator.say(said)
        else:
            self._say_fault(fault)
            self._say_trouble(trouble)
        try:
            self._record.add("stop", ended=ended, fault=fault)
        except RecordError as error:
            self._operator.say(str(error))

    def _ended_by_choice(self, ended: str) -> bool:
        """Whether a stop says nothing about the policy: a stop key is the normal way out of ``confirm``."""
        return self.mode == "confirm" and ended == "operator"

    def _announce(self, fault: str) -> None:
        trouble = self._latch(fault)
        self._say_fault(fault)
        self._say_trouble(trouble)

    def _say_trouble(self, trouble: str) -> None:
        """Show why a fault could not be latched, once."""
        if trouble and trouble != self._trouble:
            self._trouble = trouble
            self._operator.say(trouble)

    def _say_fault(self, fault: str) -> None:
        """Show a fault once, although announcer and session both find it, one of them perhaps with more detail."""
        with self._announcing:
            if self._announced and (fault.startswith(self._announced) or self._announced.startswith(fault)):
                return
            self._announced = fault
            self._operator.say(f"FAULT: {fault}")

    def _latch(self, fault: str) -> str:
        """Keep a fault and latch it; if that fails, return why: the robot stays recorded as driven."""
        self.fault = fault
        try:
            self.on_fault(fault)
        except Td3RobotError as error:
            return str(error)
        return ""

    def _close_record(self) -> None:
        """Record where the arm rests, if known."""
        try:
            self._record.add("rest", state=state_to_json(self.environment.robot.read()))
        except RecordError as error:
            self.fault = self.fault or str(error)
        except Td3RobotError as error:
            self._record.add("rest", unknown=str(error))
        self._record.flush()


class FaultAnnouncer(threading.Thread):
    """Announce a fault of the robot at once, even while the policy hangs and nothing polls the robot."""

    def __init__(self, robot: Robot, announce: Callable[[str], None]) -> None:
        super().__init__(name="fault-announcer", daemon=True)
        self._robot, self._announce = robot, announce
        self._stopping = threading.Event()

    def run(self) -> None:
        """Poll until there is a fault to announce."""
        while not self._stopping.wait(POLL_INTERVAL_S):
            if (fault := self._robot.fault) is not None:
                self._announce(fault)
                return

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopping.set()
        self.join()


def _way_in_words(journey: TravelPlan) -> str:
    legs = np.diff(np.array([journey.start, *journey.way]), axis=0)
    largest, tools = float(np.abs(legs).max()), journey.tools
    if len(tools) == 0:
        return "the arm stands at its start already" + (", and its gripper opens" if journey.opens_gripper else "")
    return (
        f"the arm will now move to its start, which takes about {journey.seconds:.0f} s: the tool goes from "
        f"{_mm(tools[0])} to {_mm(tools[-1])} mm, between {1e3 * tools[:, 2].min():.0f} and "
        f"{1e3 * tools[:, 2].max():.0f} mm high, and no joint turns by more than {np.degrees(largest):.0f} degrees"
        + (", after the gripper opened" if journey.opens_gripper else "")
    )


def _mm(position_m: Array, form: str = ".0f") -> str:
    """Format a position or a distance (3,) [m] in millimetres."""
    return f"({', '.join(format(1e3 * value + 0.0, form) for value in position_m)})"


def _direction(step_m: Array) -> str:
    """Name the direction of a small step (3,) [m] by the axes of the base frame, those that matter first."""
    length = float(np.linalg.norm(step_m))
    if length < NO_STEP_M:
        return "nowhere"
    shares = {
        f"{'+' if value > 0 else '-'}{axis}": abs(value) / length for axis, value in zip("xyz", step_m, strict=True)
    }
    return ", ".join(
        f"{axis} ({100 * share:.0f} %)" for axis, share in sorted(shares.items(), key=lambda s: -s[1]) if share > 0.1
    )


def _line(figures: ArmFigures, mode: str) -> str:
    if mode == "shadow":
        return (
            f"watched for {figures.steps} periods, {figures.missed_ticks} of them late, and nothing was sent; "
            f"the guard would have changed {figures.reasons['any']}"
            + (f"; FAULT: {figures.fault}" if figures.fault else "")
        )
    why = f" ({failure_kind(figures.failure.kind)})" if figures.failure is not None else ""
    distance = f", {left} left" if (left := distance_left(figures.distance_m)) else ""
    return (
        f"episode {figures.number + 1}: {'success' if figures.success else f'no success{why}'}{distance}, "
        f"{figures.steps} periods, {figures.missed_ticks} missed, guard changed {figures.reasons['any']}"
        + (f"; FAULT: {figures.fault}" if figures.fault else "")
    )
