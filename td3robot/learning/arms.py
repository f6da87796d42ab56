"""Several arms for one learner: each plays whole episodes in its own process.

Two arms have two clocks, and a step of one cannot wait for a step of the other. So a process takes the current policy,
brings its arm to a start, and plays an episode there; the whole episode comes back at once. No torch here: the policy
is the one that is deployed, and a process that has to keep up with control periods stays small.
"""

import gc
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.playing import require_finite
from td3robot.errors import RobotError, Td3RobotError
from td3robot.learning.environments import EnvironmentFacts, LocalEnvironments, RemoteEnvironments, Step
from td3robot.learning.exploration import Exploration
from td3robot.policy.contract import Contract
from td3robot.policy.policy import Policy
from td3robot.processes import ONE_THREAD, Parent, TrainingProcess, tune_gc
from td3robot.robots.cells import CellConfig
from td3robot.robots.travel import TravelPlan

Vector = NDArray[np.float32]

# How often a wait for the arms checks for one that has gone silent [s].
POLL_INTERVAL_S = 0.5
# Asks an arm at rest for its fault, if any.
AT_REST = "at rest"
DROPS = "the gripper opens and drops what it holds; continue?"


class ArmDeclinedError(Td3RobotError):
    """Nobody agreed to a motion of the arm; nothing was moved."""


@dataclass(frozen=True, slots=True)
class EpisodeOrder:
    """An episode for an arm to play.

    Attributes:
        policy: The policy that acts.
        exploration: Perturbs its actions.
        number: Number of the episode on its arm.
        seed: Seed for :meth:`RobotEnv.reset`.
        limit: Steps after which the episode is broken off.
    """

    policy: Policy
    exploration: Exploration
    number: int
    seed: int
    limit: int


@dataclass(frozen=True, slots=True)
class ArmEpisode:
    """An episode that an arm played.

    Attributes:
        observation: The first one, (size,); None if the arm did not get to its start.
        steps: Steps in order.
        fault: What ended the arm's part, or None.
    """

    observation: Vector | None
    steps: list[Step]
    fault: Td3RobotError | None


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a person has to agree to before the arm moves."""

    text: str


class ArmProcess(TrainingProcess, RemoteEnvironments):
    """The process of one arm: started at once, connected at the first episode.

    Args:
        name: The arm's name in messages.
        config: The environment's configuration.
        cell: The arm's cell.
        limit_s: How long it may go without a new sign of life [s].
    """

    def __init__(self, name: str, config: RobotEnvironmentConfig, cell: CellConfig, limit_s: float) -> None:
        self.name = name
        super().__init__(run_arm, f"the process of arm {name}", limit_s, (name, config, cell), ONE_THREAD)

    def begin(self, order: EpisodeOrder) -> None:
        """Make it play an episode."""
        _ = self.facts  # the facts arrive first
        self._ask(order)

    def reply(self, agreed: bool) -> None:
        """Answer the process's question."""
        self._ask(agreed)

    def answered(self) -> ArmEpisode | Question | None:
        """Return the process's answer or question, or None if there is none yet.

        Raises:
            EnvironmentFaultError: The process ended, or gives no sign of life.
        """
        if not self.channel.poll():
            self._require_alive()
            return None
        answer: ArmEpisode | Question = self._next_message()
        if isinstance(answer, ArmEpisode):
            self._waiting = False
        return answer

    def fault_at_rest(self) -> Td3RobotError | None:
        """Return the arm's fault since the last episode, or None; the end of its process is one."""
        try:
            if self._made is None or self._waiting:
                return None
            self._tell(AT_REST)
            fault: Td3RobotError | None = self._receive()
        except Td3RobotError as error:
            return error
        return fault

    def _await_made(self) -> tuple[EnvironmentFacts, Contract]:
        made: tuple[EnvironmentFacts, Contract] = self._receive()
        return made


class Arms:
    """The arms of a training, in a fixed order; one that has a fault takes no further part.

    Args:
        processes: At least one.
        agree: Called with an arm's name to ask whether it may do something.

    Attributes:
        processes: Those that take part, by number.
        ended: Those that no longer do, by name, in the order in which they ended, and why.
        on_fault: Called with an arm's number and the fault that ended its part, as soon as that is known.
    """

    def __init__(self, processes: list[ArmProcess], agree: Callable[[str, str], bool]) -> None:
        self.processes = dict(enumerate(processes))
        self.facts = replace(processes[0].facts, count=len(processes))
        self.ended: list[tuple[str, Td3RobotError]] = []
        self.on_fault: Callable[[int, Td3RobotError], None] = lambda index, fault: None
        self._agree = agree

    def play(self, orders: Mapping[int, EpisodeOrder]) -> dict[int, ArmEpisode]:
        """Have arms play one episode each, at the same time, and wait for all of them."""
        played: dict[int, ArmEpisode] = {}
        for index, order in orders.items():
            try:
                self.processes[index].begin(order)
            except Td3RobotError as fault:
                played[index] = ArmEpisode(None, [], fault)
                self._end(index, fault)
        while waiting := [index for index in orders if index not in played]:
            wait([self.processes[index].channel.fileno() for index in waiting], POLL_INTERVAL_S)
            for index in waiting:
                if (episode := self._answer(index)) is not None:
                    played[index] = episode
                    if episode.fault is not None:
                        self._end(index, episode.fault)
        return {index: played[index] for index in orders}

    def stop(self) -> None:
        """Have every arm stop after its control period; signal handlers may call this."""
        for process in list(self.processes.values()):
            process.ask_to_stop()

    def close(self) -> None:
        """Release the arms; a fault since the last episode counts as one of the training."""
        for index in list(self.processes):
            if (fault := self.processes[index].fault_at_rest()) is not None:
                self._end(index, fault)
            else:
                self.processes.pop(index).close()

    def _answer(self, index: int) -> ArmEpisode | None:
        process = self.processes[index]
        try:
            answer = process.answered()
            if isinstance(answer, Question):
                process.reply(self._agree(process.name, answer.text))
                return None
        except Td3RobotError as fault:
            return ArmEpisode(None, [], fault)
        return answer

    def _end(self, index: int, fault: Td3RobotError) -> None:
        process = self.processes.pop(index)
        process.close()
        self.ended.append((process.name, fault))
        self.on_fault(index, fault)


def run_arm(parent: Parent) -> None:
    """Make an arm's environment and play its episodes, until the parent is gone."""
    if (first := parent.next()) is None:
        return
    name, config, cell = first
    parent.say(f"arm {name} (being made)")
    try:
        environment = make_robot_env(config, cell=cell)
    except Td3RobotError as error:
        parent.answer(error)
        return
    player = Player(parent, name, LocalEnvironments([environment]))
    environment.travel.agree = player.agree
    environment.travel.watch = lambda state, decision: player.require_going()
    tune_gc()
    parent.answer((player.environments.facts, environment.contract()))
    with closing(environment):
        while (order := parent.next()) is not None:
            parent.answer(player.fault() if order == AT_REST else player.play(order))


class _StoppedError(Exception):
    """The training is to stop."""


class Player:
    """Play episodes on one arm, which rests between them.

    Args:
        parent: Orders the episodes, and says when to stop.
        name: Name of the arm.
        environments: The one on the arm.
    """

    def __init__(self, parent: Parent, name: str, environments: LocalEnvironments) -> None:
        self._parent, self._name, self.environments = parent, name, environments
        self._environment: Any = environments.environments[0].unwrapped

    def play(self, order: EpisodeOrder) -> ArmEpisode:
        """Play an episode. Garbage is collected afterwards, because that takes longer than a control period."""
        observation, steps, fault = None, list[Step](), None
        gc.disable()
        try:
            self._say("on its way to a start")
            self.environments.reset(0, order.seed)
            observation = self._environment.resume()  # the last observation dates from before the travel
            self._say("in an episode")
            self._step_through(order, observation, steps)
        except _StoppedError:
            pass
        except Td3RobotError as error:
            fault = error
        finally:
            self._environment.robot.stop()
            gc.enable()
            gc.collect()
        self._say("at rest")
        return ArmEpisode(observation, steps, fault or self.fault())

    def fault(self) -> Td3RobotError | None:
        """Return the fault that the robot has latched, or None."""
        latched: str | None = self._environment.robot.fault
        return None if latched is None else RobotError(latched)

    def agree(self, plan: TravelPlan) -> None:
        """Ask a person to agree to a motion that drops what is held.

        Raises:
            ArmDeclinedError: Nobody agreed.
        """
        if plan.drops:
            self.require_going()
            self._parent.answer(Question(DROPS))
            agreed = self._parent.next()
            self.require_going()
            if not agreed:
                raise ArmDeclinedError("the gripper holds something, and nobody took it; nothing was moved")

    def require_going(self) -> None:
        """Raise if the training is to stop."""
        if self._parent.asked_to_stop:
            raise _StoppedError

    def _step_through(self, order: EpisodeOrder, observation: Vector, steps: list[Step]) -> None:
        while len(steps) < order.limit:
            self.require_going()
            action = order.policy.act(observation[None])
            step = self.environments.step(0, order.exploration.perturb(action)[0])
            where = f"arm {self._name}, episode {order.number}, step {len(steps)}"
            require_finite(self.environments.facts.observation_layout, step.observation, step.reward, where)
            steps.append(step)
            observation = step.observation
            if step.terminated or step.truncated:
                return

    def _say(self, what: str) -> None:
        self._parent.say(f"arm {self._name} ({what})")
