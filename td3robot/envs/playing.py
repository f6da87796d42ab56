"""Playing whole episodes, and their figures: the same for training, evaluation, rehearsal and deployment."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td3robot import seeding
from td3robot.errors import EnvironmentFaultError
from td3robot.layout import Layout
from td3robot.statistics import mean_interval, wilson_interval
from td3robot.tasks.interface import Failure

if TYPE_CHECKING:
    from td3robot.robots.simulated.handling import EpisodeHandling, Handling

Vector = NDArray[np.float32]
Act = Callable[[Vector], Vector]
Environment = gymnasium.Env[Any, Any]
# What is read in an environment's info. Nothing else of it is kept, or sent to another process.
REPORTED = (
    "success", "reward_terms", "interventions", "distance_m", "tcp_speed_m_s", "joint_speed_rad_s", "fault", "failure",
)  # fmt: skip


@dataclass(slots=True)
class EpisodeFigures:
    """The figures of one episode. Those that its environment does not report stay None.

    Attributes:
        number, seed: Identify the episode.
        steps: Steps played.
        success, distance_m: At the end; ``distance_m`` is the last one reported.
        total_reward: Sum over the episode.
        reasons: How many steps the guard changed, by reason; ``any`` counts a step once. Empty without a guard.
        tcp_speed_m_s, joint_speed_rad_s: The largest measured.
        ended: ``time``, ``goal`` (the environment terminated), ``fault``, or an empty text while in progress; a session
            may stop an episode for other reasons.
        fault: What went wrong, in one sentence, or None.
        failure: Why a robot's episode did not succeed; None where its task had no say.
        handling: How its objects were handled; None where nobody looked, as in training and on an arm.
    """

    number: int
    seed: int
    steps: int = 0
    success: bool | None = None
    distance_m: float | None = None
    total_reward: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    tcp_speed_m_s: float | None = None
    joint_speed_rad_s: float | None = None
    ended: str = ""
    fault: str | None = None
    failure: Failure | None = None
    handling: "EpisodeHandling | None" = None

    def count(self, reward: float, info: dict[str, Any]) -> None:
        """Add one step, with the reward and info that the environment returned."""
        self.steps += 1
        self.total_reward += reward
        self.success = bool(info["success"]) if "success" in info else None
        self.distance_m = info.get("distance_m", self.distance_m)
        self.tcp_speed_m_s = _larger(self.tcp_speed_m_s, info.get("tcp_speed_m_s"))
        self.joint_speed_rad_s = _larger(self.joint_speed_rad_s, info.get("joint_speed_rad_s"))
        if "interventions" in info:
            self.reasons.update(info["interventions"])
            self.reasons["any"] += bool(info["interventions"])

    def end(self, truncated: bool, info: dict[str, Any]) -> None:
        """Note how the episode ended, with the info of its last step."""
        self.fault = info.get("fault")
        self.ended = "fault" if self.fault is not None else "time" if truncated else "goal"
        self.failure = None if self.fault is not None else info.get("failure")


class Player:
    """Play one environment step by step.

    Args:
        environment: Any environment with observations (size,) and actions (size,) in [-1, 1].
        act: The policy.

    Attributes:
        figures: Figures of the episode in progress.
        observation: The observation that the policy acts on next.
        action: Its last action.
        handling: Looks at how objects are handled, if it is set before an episode; only a simulation can.
    """

    kind: ClassVar[type[EpisodeFigures]] = EpisodeFigures  # the figures that it fills
    handling: "Handling | None" = None

    def __init__(self, environment: Environment, act: Act) -> None:
        self.environment, self._act = environment, act
        self.figures = self.kind(0, 0)
        self._layout: Layout | None = getattr(environment.unwrapped, "observation_layout", None)

    def begin(self, number: int, seed: int, options: dict[str, Any] | None = None) -> EpisodeFigures:
        """Reset the environment, and return the figures that this episode will fill.

        Raises:
            EnvironmentFaultError: The observation is not finite.
        """
        self.figures = self.kind(number, seed)
        self.observation, _ = self.environment.reset(seed=seed, options=options)
        require_finite(self._layout, self.observation, 0.0, f"episode {number}, reset")
        if self.handling is not None:
            self.figures.handling = self.handling.begin()
        return self.figures

    def step(self) -> bool:
        """Play one step, and return whether the episode is over.

        Raises:
            EnvironmentFaultError: The observation or the reward is not finite.
        """
        figures = self.figures
        where = f"episode {figures.number}, step {figures.steps}"
        self.action = self._act(self.observation)
        self.observation, reward, terminated, truncated, info = self.environment.step(self.action)
        require_finite(self._layout, self.observation, float(reward), where)
        figures.count(float(reward), info)
        if self.handling is not None:
            self.handling.look()
        if not (terminated or truncated):
            return False
        figures.end(bool(truncated), info)
        return True


def play_episodes(
    player: Player,
    episodes: int,
    seed: int,
    stream: seeding.Stream = seeding.Stream.EVALUATION_EPISODES,
    on_frame: Callable[[Environment], None] | None = None,
    on_episode: Callable[[int], None] | None = None,
) -> list[EpisodeFigures]:
    """Play whole episodes, and return the figures of each.

    Args:
        player: The policy and its environment.
        episodes: How many.
        seed: Each episode's own seed is derived from it.
        stream: What the episodes are for: those that select the best policy of a training are never those that
            evaluate it afterwards.
        on_frame: Called after every reset and step, to record a video.
        on_episode: Called after every episode, with the number played so far.
    """
    played = []
    for number in range(episodes):
        played.append(player.begin(number, seeding.integer(seed, stream, number)))
        over = False
        while not over:
            if on_frame is not None:
                on_frame(player.environment)
            over = player.step()
        if on_frame is not None:
            on_frame(player.environment)
        if on_episode is not None:
            on_episode(number + 1)
    return played


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over several episodes. Those that an environment does not report are None.

    Attributes:
        success_ci95: Wilson score interval of the success rate.
        mean_return_ci95: Interval of the mean return by Student's t; None of one episode, and of earlier versions.
        guard_interventions: Share of steps that the guard changed, by reason; ``any`` counts a step once.
        failures: Of the episodes that did not succeed: ``episodes``, and the median ``distance_m`` where one says more,
            by :attr:`Failure.kind`, or by what ended them early; None where nobody says, and of earlier versions.
        handling: How gently objects were handled (``robots/simulated/handling.py``); None but in ``td3robot eval`` of a
            simulated task with objects.
    """

    success_rate: float | None
    success_ci95: tuple[float, float] | None
    episodes: int
    mean_return: float
    mean_steps: float
    mean_final_distance_m: float | None
    max_tcp_speed_m_s: float | None
    max_joint_speed_rad_s: float | None
    guard_interventions: dict[str, float] | None
    mean_return_ci95: tuple[float, float] | None = None
    failures: dict[str, dict[str, Any]] | None = None
    handling: dict[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self)

    def beats(self, other: "Evaluation") -> bool:
        """Whether this policy is better than another one.

        It is if it succeeds more often, or has the higher return and succeeds about as often. Where success is
        reported, both must differ by more than chance: each figure lies outside the other's 95 % interval. Otherwise,
        the return is all that is known, and the higher one wins.
        """
        mine, theirs = self.success_rate, other.success_rate
        if mine is None or theirs is None:
            return self.mean_return > other.mean_return
        if _exceeds(mine, self.success_ci95, theirs, other.success_ci95):
            return True
        if _exceeds(theirs, other.success_ci95, mine, self.success_ci95):
            return False
        return _exceeds(self.mean_return, self.mean_return_ci95, other.mean_return, other.mean_return_ci95)


def summarize(episodes: Sequence[EpisodeFigures]) -> Evaluation:
    """Return the figures of one or more episodes together.

    An episode that was stopped before its environment reported success or failure counts as a failure if any other
    episode has such a report.
    """
    steps = sum(episode.steps for episode in episodes)
    successes = [episode.success for episode in episodes]
    distances = [episode.distance_m for episode in episodes if episode.distance_m is not None]
    reasons: Counter[str] = Counter()
    for episode in episodes:
        reasons.update(episode.reasons)
    rated = any(success is not None for success in successes)
    successful = sum(bool(success) for success in successes)
    returns = [episode.total_reward for episode in episodes]
    return Evaluation(
        success_rate=successful / len(episodes) if rated else None,
        success_ci95=wilson_interval(successful, len(episodes)) if rated else None,
        episodes=len(episodes),
        mean_return=float(np.mean(returns)),
        mean_steps=steps / len(episodes),
        mean_final_distance_m=float(np.mean(distances)) if distances else None,
        max_tcp_speed_m_s=_largest(episode.tcp_speed_m_s for episode in episodes),
        max_joint_speed_rad_s=_largest(episode.joint_speed_rad_s for episode in episodes),
        guard_interventions={reason: count / steps for reason, count in sorted(reasons.items())} if reasons else None,
        mean_return_ci95=mean_interval(returns),
        failures=failures_of(episodes) if rated else None,
        handling=summarize_handling([each.handling for each in episodes if each.handling is not None]),
    )


def failures_of(episodes: Sequence[EpisodeFigures]) -> dict[str, dict[str, Any]] | None:
    """Sort the episodes that did not succeed by why, the most frequent first; see :class:`Evaluation`."""
    kinds: dict[str, list[float | None]] = {}
    for episode in episodes:
        stopped = Failure(episode.ended or "stopped") if episode.ended not in ("time", "goal") else None
        reason = episode.failure or stopped
        if not episode.success and reason is not None:
            kinds.setdefault(reason.kind, []).append(reason.distance_m)
    found = {}
    for kind, distances in sorted(kinds.items(), key=lambda item: -len(item[1])):
        known = [distance for distance in distances if distance is not None]
        found[kind] = {"episodes": len(distances), "distance_m": float(np.median(known)) if known else None}
    return found or None


def summarize_handling(episodes: Sequence["EpisodeHandling"]) -> dict[str, float] | None:
    """Return the figures of episodes together; None of none."""
    if not episodes:
        return None
    pushes = [episode.push_m for episode in episodes]
    return {
        "push_median_m": float(np.median(pushes)),
        "push_p95_m": float(np.percentile(pushes, 95)),
        "max_force_before_grip_n": max(episode.force_before_grip_n for episode in episodes),
        "max_force_n": max(episode.force_n for episode in episodes),
    }


def evaluate(
    environment: Environment,
    act: Act,
    episodes: int,
    seed: int,
    stream: seeding.Stream = seeding.Stream.EVALUATION_EPISODES,
    on_frame: Callable[[Environment], None] | None = None,
    on_episode: Callable[[int], None] | None = None,
) -> Evaluation:
    """Play whole episodes without exploration, and return their figures; arguments as in :func:`play_episodes`.

    Raises:
        EnvironmentFaultError: An observation or reward is not finite.
    """
    return summarize(play_episodes(Player(environment, act), episodes, seed, stream, on_frame, on_episode))


def require_finite(layout: Layout | None, observation: Vector, reward: float, where: str) -> None:
    """Refuse an observation or reward that is not finite.

    Raises:
        EnvironmentFaultError: Naming the field, its value and where it occurred.
    """
    if not np.isfinite(reward):
        raise EnvironmentFaultError(f"the reward is {reward} in {where}; it must be finite")
    if not np.isfinite(observation).all():
        bad = int(np.flatnonzero(~np.isfinite(observation))[0])
        name = layout.component(bad) if layout is not None else f"number {bad}"
        raise EnvironmentFaultError(f"observation {name} is {observation[bad]} in {where}; it must be finite")


def _exceeds(
    value: float,
    interval: tuple[float, float] | None,
    other: float,
    others: tuple[float, float] | None,
) -> bool:
    """Whether a figure is higher than another, each outside the other's interval; without one, a figure is exact."""
    low = interval[0] if interval else value
    others_high = others[1] if others else other
    return value > others_high and other < low


def _larger(so_far: float | None, value: float | None) -> float | None:
    return so_far if value is None else value if so_far is None else max(so_far, value)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
