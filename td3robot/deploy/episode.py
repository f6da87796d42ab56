"""One episode, played and counted, the same way on an arm and in simulation so that their figures compare."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3robot.envs.robot_env import RobotEnv
from td3robot.robots.guard import Ruling
from td3robot.state import JointCommand

Vector = NDArray[np.float32]
Act = Callable[[Vector], Vector]


@dataclass(slots=True)
class Figures:
    """The figures of one episode.

    Attributes:
        number, seed: Which episode.
        steps: Control periods played.
        success, distance_m: At the end.
        total_reward: Sum over the episode.
        reasons: In how many periods the guard changed the wish, by reason; ``any`` counts a period once.
        tcp_speed_m_s, joint_speed_rad_s: The largest measured.
        decide_s: Time from an observation to the command sent, period by period: policy, action, guard.
        state_age_s: Age of the measured state when the command was sent, period by period.
        lead_rad: Distance of measured from commanded posture at the end of each period, of the worst joint.
        missed_ticks: Control periods that were over before ``advance`` was called.
        ended: ``time``, ``operator``, ``fault``, or empty while the episode runs.
        fault: What went wrong, in one sentence, or None.
    """

    number: int
    seed: int
    steps: int = 0
    success: bool = False
    distance_m: float | None = None
    total_reward: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    tcp_speed_m_s: float = 0.0
    joint_speed_rad_s: float = 0.0
    decide_s: list[float] = field(default_factory=list)
    state_age_s: list[float] = field(default_factory=list)
    lead_rad: list[float] = field(default_factory=list)
    missed_ticks: int = 0
    ended: str = ""
    fault: str | None = None


class Player:
    """Plays one environment period by period.

    Args:
        environment: On an arm, or simulated.
        act: The policy.
        on_period: Called right after each command is sent: figures, observation, action, wish, ruling, sent.
    """

    def __init__(
        self,
        environment: RobotEnv,
        act: Act,
        on_period: Callable[[Figures, Vector, Vector, JointCommand, Ruling, JointCommand], None] | None = None,
    ) -> None:
        self.environment, self._act, self._on_period = environment, act, on_period
        self.figures = Figures(0, 0)
        self._info: dict[str, Any] = {}

    def begin(self, number: int, seed: int, options: dict[str, Any] | None = None) -> Figures:
        """Bring the arm to the start of an episode."""
        self.figures = Figures(number, seed)
        self.environment.watch = None
        self.observation, _ = self.environment.reset(seed=seed, options=options)
        return self.figures

    def resume(self) -> None:
        """Observe again after a pause in which the arm rested."""
        self.observation = self.environment.resume()

    def step(self) -> bool:
        """Play one control period, and return whether the episode is over.

        Raises:
            Td3RobotError: The policy, the guard or the robot failed.
        """
        self._begun = perf_counter()
        self._action = self._act(self.observation)
        self.environment.watch = self._sent
        self._observed = self.observation
        missed = self.environment.robot.missed_ticks
        self.observation, reward, _, truncated, info = self.environment.step(self._action)
        self._count(info, float(reward), self.environment.robot.missed_ticks - missed)
        if truncated:
            self.figures.ended, self.figures.fault = ("fault", info["fault"]) if "fault" in info else ("time", None)
        return truncated

    def _sent(self, wish: JointCommand, ruling: Ruling, sent: JointCommand) -> None:
        figures, environment = self.figures, self.environment
        figures.decide_s.append(perf_counter() - self._begun)
        figures.state_age_s.append(environment.robot.now() - environment.seen.robot.stamp)
        if self._on_period is not None:
            self._on_period(figures, self._observed, self._action, wish, ruling, sent)

    def _count(self, info: dict[str, Any], reward: float, missed: int) -> None:
        figures, world = self.figures, self.environment.world
        figures.steps += 1
        figures.total_reward += reward
        figures.missed_ticks += missed
        figures.success, figures.distance_m = bool(info["success"]), info.get("distance_m", figures.distance_m)
        figures.reasons.update(info["interventions"])
        figures.reasons["any"] += bool(info["interventions"])
        figures.tcp_speed_m_s = max(figures.tcp_speed_m_s, info.get("tcp_speed_m_s", 0.0))
        figures.joint_speed_rad_s = max(figures.joint_speed_rad_s, info.get("joint_speed_rad_s", 0.0))
        figures.lead_rad.append(float(np.abs(world.robot.q - world.commanded.q).max()))
