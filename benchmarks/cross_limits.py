"""A search that tries to cross the guard's limits with the simulated arm itself, not with its commands.

Usage: python benchmarks/cross_limits.py [--periods 1000000] [--servo undisturbed] [--processes 2] [--seed 0]

Cross-entropy searches over policies: bursts and longer sequences of joint velocities, linear policies and small
networks, each with the posture that it starts from. What they wish goes through the guard to the simulated arm, whose
tool is looked at in every step of the physics. Half of the searches want the tool fast, half want it outside of the
workspace. What every policy of every search reached is printed as JSON; nothing here is a proof that there is nothing
worse.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from time import perf_counter
from typing import NamedTuple

import mujoco
import numpy as np

from td3robot.config import GuardConfig, RobotConfig
from td3robot.robots.guard import Guard
from td3robot.robots.interface import RobotSpec, robot_spec
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.servo import follow_line
from td3robot.robots.simulated.mujoco import MujocoRobot, motor_targets
from td3robot.robots.simulated.scene import GRIPPER_PREFIX, TCP_SITE, simulation_spec
from td3robot.state import Array, JointCommand, RobotState

PHYSICS_HZ = 400.0
# How many control periods an episode has, and a burst; how many policies a generation has, and make the next.
PERIODS, BURST, POPULATION, ELITE = 48, 14, 64, 8
# A sequence holds each of its joint velocities for so many periods, a burst less; a network has so many hidden units.
HELD, HELD_IN_BURST, HIDDEN = 4, 2, 8
# Parameters are drawn with this spread, and never with less than the other; starts are this far around home [rad].
SPREAD, LEAST_SPREAD, START_RAD = 1.0, 0.05, 1.0
# Joint velocities that are wished are this fast where a policy says 1 [rad/s].
FULL_RAD_S = 2.0
# What is less outside is rounding [m].
OUTSIDE_M = 1e-5

# How the simulated servos differ, per joint: (factors on their laws' lags, factors on their damping ratios). The
# overshooting joints go 5 % beyond a step; uneven joints have the ends of what the disturbance `real` draws for all of
# them, and half as much more.
Factors = tuple[tuple[float, ...], tuple[float, ...]]
SERVOS: dict[str, Factors] = {
    "undisturbed": ((1.0,) * 6, (1.0,) * 6),
    "slow": ((1.3,) * 6, (1.0,) * 6),
    "quick": ((0.7,) * 6, (1.0,) * 6),
    "overshooting": ((0.5,) * 6, (0.8,) * 6),
    "uneven": ((1.0, 0.7, 1.3, 0.7, 1.3, 0.7), (1.0,) * 6),
    "more uneven": ((1.0, 0.55, 1.45, 0.55, 1.45, 0.55), (1.0,) * 6),
}


@dataclass
class Reached:
    """What was reached at most; of several, the most of each.

    Attributes:
        speed_m_s: Of the true tool.
        outside_m: How far the true tool was outside of the workspace, along the axis where that is most.
        fast: Control periods in which the true tool was above the guard's limit.
        out: Control periods in which it was more than ``OUTSIDE_M`` outside.
        periods: Control periods in all.
    """

    speed_m_s: float = 0.0
    outside_m: float = -np.inf
    fast: int = 0
    out: int = 0
    periods: int = 0

    def add(self, other: "Reached") -> None:
        """Take in what was reached elsewhere."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, mine + theirs if field.type is int else max(mine, theirs))


class Servos:
    """Joints that follow commands, each by a law of its own.

    Attributes:
        q, v, a: (n,) joint angles [rad] at the beginning of a physics step, speeds in it [rad/s], accelerations.
    """

    def __init__(self, spec: RobotSpec, servo: Factors) -> None:
        self._laws = [spec.law.varied(*factors) for factors in zip(*servo, strict=True)]
        self.steps = round(PHYSICS_HZ * spec.period_s)

    def place(self, q: Array) -> None:
        """Place the joints at rest."""
        self._command, self._q, self._speed = q.copy(), q.copy(), np.zeros_like(q)
        self.v = np.zeros_like(q)

    def follow(self, command: Array) -> Iterator[None]:
        """Follow a straight line to a command (n,) [rad], one physics step after the other."""
        begin, step_s = self._command, 1.0 / PHYSICS_HZ
        self._command = command.copy()
        for step in range(self.steps):
            target, end = (begin + (command - begin) * share / self.steps for share in (step, step + 1))
            self.q, before = self._q.copy(), self.v
            for joint, law in enumerate(self._laws):
                one = slice(joint, joint + 1)
                follow_line(
                    np.array([law.gain]), law.lookahead_s, step_s, target[one], end[one], self._q[one], self._speed[one]
                )
            self.v = (self._q - self.q) / step_s
            self.a = (self.v - before) / step_s
            yield


class WatchedArm(MujocoRobot):
    """The simulated arm, which remembers where its tool was in every step of the physics.

    Attributes:
        path: (steps + 1, 3) where the tool was in the last period [m].
    """

    def __init__(self, spec: RobotSpec, servo: Factors) -> None:
        super().__init__(spec, PHYSICS_HZ)
        self.connect()
        self._site = self.model.site(TCP_SITE).id
        self._servos = Servos(spec, servo)
        self.path = np.zeros((self.substeps + 1, 3))

    def begin_at(self, q: Array) -> None:
        """Place the arm at q, and begin to watch there."""
        self.move_to(q)
        self._servos.place(q)
        self.path[-1] = self.data.site_xpos[self._site]

    def pass_period(self, command: JointCommand) -> None:
        """Follow a command for a period."""
        self.path[0] = self.path[-1]
        for step, _ in enumerate(self._servos.follow(command.q)):
            self.keep_to(self._servos.q, self._servos.v, self._servos.a)
            self.path[step + 1] = self.data.site_xpos[self._site]  # where the step began


class LeanArm:
    """The same arm with its gripper's linkage held open and nothing to touch: three times as fast to simulate.

    Attributes:
        path: As of :class:`WatchedArm`.
    """

    def __init__(self, spec: RobotSpec, servo: Factors) -> None:
        scene = simulation_spec(spec, PHYSICS_HZ)
        for part in [*scene.equalities, *scene.tendons, *scene.actuators, *scene.joints]:
            if part.name.startswith(GRIPPER_PREFIX) or part not in [*scene.actuators, *scene.joints]:
                scene.delete(part)
        scene.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        self._model = scene.compile()
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(TCP_SITE).id
        self._servos = Servos(spec, servo)
        self._inertia, self._stiffness = np.zeros((self._model.nv,) * 2), self._model.actuator_gainprm[:, 0].copy()
        self.path = np.zeros((self._servos.steps + 1, 3))

    def begin_at(self, q: Array) -> None:
        """Place the arm at q, at rest, and begin to watch there."""
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:] = q
        self._servos.place(q)
        mujoco.mj_forward(self._model, self._data)
        self.path[-1] = self._data.site_xpos[self._site]

    def read(self) -> RobotState:
        """Return the state at the end of the last period."""
        return RobotState(self._data.qpos.copy(), self._data.qvel.copy(), np.zeros(2), self._data.time)

    def pass_period(self, command: JointCommand) -> None:
        """Follow a command for a period, as :class:`WatchedArm` does."""
        data, servos = self._data, self._servos
        self.path[0] = self.path[-1]
        for step, _ in enumerate(servos.follow(command.q)):
            mujoco.mj_fullM(self._model, data, self._inertia)
            data.act[:] = motor_targets(servos.q, servos.v, servos.a, self._inertia, self._stiffness)
            mujoco.mj_step(self._model, data)
            self.path[step + 1] = data.site_xpos[self._site]  # where the step began


# From parameters, the period, joint angles from home and the last joint velocities to the joint velocities wished for.
Policy = Callable[[Array, int, Array, Array], Array]


def sequence(parameters: Array, period: int, q: Array, velocity: Array, held: int = HELD) -> Array:
    """Play one joint velocity after the other."""
    return parameters.reshape(-1, len(q))[period // held]


def features(period: int, q: Array, velocity: Array) -> Array:
    """What a policy with feedback sees."""
    phase = 2.0 * np.pi * period / PERIODS
    return np.concatenate([q, velocity, [np.sin(phase), np.cos(phase), 1.0]])


def linear(parameters: Array, period: int, q: Array, velocity: Array) -> Array:
    """Weigh the features."""
    seen = features(period, q, velocity)
    return np.tanh(parameters.reshape(len(q), len(seen)) @ seen)


def network(parameters: Array, period: int, q: Array, velocity: Array) -> Array:
    """Pass the features through one hidden layer."""
    seen = features(period, q, velocity)
    split = HIDDEN * len(seen)
    hidden = np.tanh(parameters[:split].reshape(HIDDEN, len(seen)) @ seen)
    return np.tanh(parameters[split:].reshape(len(q), HIDDEN) @ hidden)


class Kind(NamedTuple):
    """A kind of policies: how they act, how many parameters they have, and for how many periods they are played."""

    act: Policy
    size: int
    periods: int


POLICIES = {
    "burst": Kind(partial(sequence, held=HELD_IN_BURST), 6 * BURST // HELD_IN_BURST, BURST),
    "sequence": Kind(sequence, 6 * PERIODS // HELD, PERIODS),
    "linear": Kind(linear, 6 * 15, PERIODS),
    "network": Kind(network, HIDDEN * (15 + 6), PERIODS),
}
AIMS = {"speed": "speed_m_s", "workspace": "outside_m"}


class Adversary:
    """Plays policies against guard and arm, and sees what they reach."""

    def __init__(self, servo: Factors, lean: bool = True) -> None:
        spec = robot_spec(RobotConfig())
        self.spec, self.config = spec, GuardConfig()
        self.guard = Guard(spec, self.config, Kinematics(spec, self.config.clearance_m))
        self.arm: LeanArm | WatchedArm = LeanArm(spec, servo) if lean else WatchedArm(spec, servo)
        self._low, self._high = np.array(self.config.workspace.low), np.array(self.config.workspace.high)

    def play(self, policy: str, parameters: Array) -> Reached:
        """Play one episode; the first parameters are where it starts."""
        joints, kind = len(self.spec.arm.home), POLICIES[policy]
        start = self.spec.arm.home + START_RAD * np.tanh(parameters[:joints])
        reached = Reached()
        if self.guard.admits(start) is not None:
            return reached
        self.guard.reset(start)
        self.arm.begin_at(start)
        for period in range(kind.periods):
            commanded, velocity = self.guard.q[0], self.guard.velocity[0]
            wished = FULL_RAD_S * kind.act(parameters[joints:], period, commanded - self.spec.arm.home, velocity)
            self._pass_period(JointCommand(commanded + wished * self.spec.period_s, 0.0), reached)
        return reached

    def _pass_period(self, wish: JointCommand, reached: Reached) -> None:
        state = self.arm.read()
        ruling = self.guard.filter(wish, state, state.stamp)
        self.arm.pass_period(ruling.command)
        path = self.arm.path
        steps = np.diff(path, axis=0)
        speed = float(np.sqrt((steps * steps).sum(axis=1).max())) * PHYSICS_HZ
        outside = float(np.maximum(self._low - path, path - self._high).max())
        reached.speed_m_s = max(reached.speed_m_s, speed)
        reached.outside_m = max(reached.outside_m, outside)
        reached.fast += speed > self.config.max_tcp_speed_m_s
        reached.out += outside > OUTSIDE_M
        reached.periods += 1


def search(
    servo: Factors, policy: str, aim: str, generations: int, seed: int, population: int = POPULATION
) -> tuple[Reached, Reached]:
    """Search for parameters that reach the most.

    Returns:
        What all of them reached, and what the best of each generation reached with the whole simulated arm.
    """
    adversary, whole = Adversary(servo), Adversary(servo, lean=False)
    rng = np.random.default_rng(seed)
    size = POLICIES[policy].size + len(adversary.spec.arm.home)
    mean, spread = np.zeros(size), np.full(size, SPREAD)
    reached, replayed = Reached(), Reached()
    for _ in range(generations):
        drawn = mean + spread * rng.normal(size=(population, size))
        found = [adversary.play(policy, parameters) for parameters in drawn]
        order = np.argsort([getattr(each, AIMS[aim]) for each in found])
        for each in found:
            reached.add(each)
        replayed.add(whole.play(policy, drawn[order[-1]]))
        best = drawn[order[-ELITE:]]
        mean, spread = best.mean(axis=0), np.maximum(best.std(axis=0), LEAST_SPREAD)
    return reached, replayed


def searched(task: tuple[str, str, str, int, int]) -> tuple[str, str, Reached, Reached]:
    """Do one search in a process of its own."""
    servo, policy, aim, generations, seed = task
    return policy, aim, *search(SERVOS[servo], policy, aim, generations, seed)


def main() -> None:
    """Search, and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--periods", type=int, default=1_000_000)
    parser.add_argument("--servo", choices=SERVOS, default="undisturbed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--generations", type=int, default=24)
    parser.add_argument("--policy", choices=POLICIES, help="all of them, unless given")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    policies = [arguments.policy] if arguments.policy else list(POLICIES)
    kinds = [(policy, aim) for aim in AIMS for policy in policies]
    tasks = (
        (arguments.servo, *kinds[number % len(kinds)], arguments.generations, arguments.seed + number)
        for number in count()
    )
    began, lean, whole = perf_counter(), Reached(), Reached()
    with get_context("spawn").Pool(arguments.processes) as pool:
        while lean.periods < arguments.periods:
            for policy, aim, reached, replayed in pool.imap_unordered(searched, islice(tasks, arguments.processes)):
                lean.add(reached)
                whole.add(replayed)
                print(f"{policy:8} for {aim:9} {reached} replayed {replayed}", flush=True)
    took = round(perf_counter() - began)
    print(json.dumps({"servo": arguments.servo, "seconds": took, "search": vars(lean), "replayed": vars(whole)}))


if __name__ == "__main__":
    main()
