"""One episode on an arm: the figures of all playing, and those that only a real clock has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from td3robot.deploy.gripper_figures import Closing, GripperWatch
from td3robot.envs.playing import Act, EpisodeFigures, Player, Vector
from td3robot.envs.robot_env import RobotEnv
from td3robot.robots.guard import GuardDecision
from td3robot.state import Array, JointCommand


@dataclass(slots=True)
class ArmFigures(EpisodeFigures):
    """The figures of one episode on an arm, or of its twin in simulation.

    Attributes:
        success: A stopped episode is not a success.
        decide_s: Time from an observation to the command sent, per period: policy, action, guard.
        state_age_s: Age of the measured state when the command was sent, per period.
        lead_rad: Distance between measured and commanded posture at the end of each period, for the worst joint.
        missed_ticks: Control periods that were over before ``advance`` was called.
        closings: Every closing of the gripper.
        tool_force_n: Largest force at the tool that the robot estimated at the end of a period; None if it does not.
        ended: As for every episode, or ``operator``.
    """

    success: bool | None = False
    decide_s: list[float] = field(default_factory=list)
    state_age_s: list[float] = field(default_factory=list)
    lead_rad: list[float] = field(default_factory=list)
    missed_ticks: int = 0
    closings: list[Closing] = field(default_factory=list)
    tool_force_n: float | None = None


OnPeriod = Callable[[ArmFigures, Vector, Vector, JointCommand, GuardDecision, JointCommand], None]


class ArmPlayer(Player):
    """Play one environment period by period, and time it.

    Args:
        environment: On an arm, or simulated.
        act: The policy.
        on_period: Called right after each command is sent, with figures, observation, action, desired, decision, sent.
    """

    environment: RobotEnv
    figures: ArmFigures
    kind = ArmFigures

    def __init__(self, environment: RobotEnv, act: Act, on_period: OnPeriod | None = None) -> None:
        super().__init__(environment, act)
        self._on_period = on_period
        self._gripper = GripperWatch(environment.robot.spec.gripper)

    def begin(self, number: int, seed: int, options: dict[str, Any] | None = None) -> ArmFigures:
        """Bring the arm to the start of an episode."""
        self.environment.watch = None
        super().begin(number, seed, options)
        self._gripper.forget()
        self._gripper.closings = self.figures.closings
        return self.figures

    def resume(self, velocity: Array | None = None) -> None:
        """Observe again after a pause in which the arm rested; arguments as in :meth:`RobotEnv.resume`."""
        self.observation = self.environment.resume(velocity)
        self._gripper.forget()

    def step(self) -> bool:
        """Play one control period, and return whether the episode is over.

        Raises:
            Td3RobotError: The policy, the guard or the robot failed.
        """
        environment, figures = self.environment, self.figures
        self._begun, self._observed = perf_counter(), self.observation
        environment.watch = self._sent
        missed = environment.robot.missed_ticks
        over = super().step()
        state = environment.world.robot
        self._gripper.measured(state.stamp, state.driver_q)
        if over:
            self._gripper.finish()
        if (force := environment.robot.tool_force()) is not None:
            figures.tool_force_n = max(figures.tool_force_n or 0.0, float(np.linalg.norm(force[:3])))
        figures.missed_ticks += environment.robot.missed_ticks - missed
        figures.lead_rad.append(float(np.abs(environment.world.robot.q - environment.world.commanded.q).max()))
        return over

    def ahead(self) -> tuple[JointCommand, tuple[str, ...]]:
        """Return what the next step would send, and why the guard would change it; nothing is sent."""
        decision = self.environment.preview(self._act(self.observation))
        return decision.command, decision.reasons

    def _sent(self, desired: JointCommand, decision: GuardDecision, sent: JointCommand) -> None:
        figures, environment = self.figures, self.environment
        figures.decide_s.append(perf_counter() - self._begun)
        now = environment.robot.now()
        figures.state_age_s.append(now - environment.seen.robot.stamp)
        self._gripper.gripper_command(now, sent.gripper)
        if self._on_period is not None:
            self._on_period(figures, self._observed, self.action, desired, decision, sent)
