"""Play released grasps with a tracker that fails in one way at a time, and objects that are moved.

Example: python benchmarks/tracking.py --policies ur5e_grasp ur10e_grasp --episodes 30

The camera is one of 30 Hz, 50 ms late, with 0.5 mm of noise, that the hand hides from within 80 mm. What it sees passes
through the same checks as a physical cell's datagrams, by the simulation's clock. All rows have the same seeds.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from td3robot import seeding
from td3robot.build import make_robot_env, object_bounds
from td3robot.config import RobotEnvironmentConfig
from td3robot.config.disturbance import DisturbanceConfig
from td3robot.envs.batch import RobotBatch
from td3robot.envs.playing import Player
from td3robot.envs.robot_env import RobotEnv
from td3robot.geometry import quaternion, rotation_matrix
from td3robot.policy.checkpoint import Checkpoint, find, load_policy
from td3robot.robots.objects import ObjectBounds, Objects, Sighting
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.trackers import ObjectTracker, Report, TrackerConfig
from td3robot.state import Array, Pose
from td3robot.tasks.grasp_formulas import OBJECT

SEED = 777
HIDDEN_M = 0.08
CAMERA = DisturbanceConfig(
    camera_rate_hz=(30.0, 30.0),
    camera_latency_s=(0.05, 0.05),
    camera_hidden_m=(HIDDEN_M, HIDDEN_M),
    object_noise_m=0.0005,
)
# When a fault begins that does not wait for the hand [s].
BEGINS_S = (0.5, 3.0)
EPOCH_S = 1e9


@dataclass
class Moment:
    """What a fault may look at: the time since the episode began [s], the hand, and what the environment believes."""

    since_s: float
    tool: Array
    held: bool
    rng: np.random.Generator


class Fault:
    """A tracker that fails, or an object that somebody moves: both methods of a kind that does nothing."""

    def begin(self, rng: np.random.Generator) -> None:
        """Draw an episode's fault."""
        self.at_s, self.done = rng.uniform(*BEGINS_S), False

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Return the pose that is reported for a new frame, or None for nothing."""
        return pose

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Return where the object is put in this period, or None to leave it where it is."""
        return None


@dataclass
class Silent(Fault):
    """Nothing arrives for a while, once or time and again."""

    for_s: float
    every_s: float = inf

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Report it."""
        since = moment.since_s - self.at_s
        return None if since >= 0.0 and since % self.every_s < self.for_s else pose


@dataclass
class Frozen(Fault):
    """The last picture is sent again with new stamps; the object may be nudged meanwhile."""

    for_s: float
    nudge_m: float = 0.0

    def begin(self, rng: np.random.Generator) -> None:
        """Draw it."""
        super().begin(rng)
        self.last: Pose | None = None

    def _is_on(self, moment: Moment) -> bool:
        return 0.0 <= moment.since_s - self.at_s < self.for_s

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Report it."""
        if not self._is_on(moment) or self.last is None:
            self.last = pose
        return self.last

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Put it there."""
        if self.done or not self.nudge_m or not self._is_on(moment):
            return None
        self.done = True
        return nudged(pose, self.nudge_m, moment.rng)


@dataclass
class Odd(Fault):
    """Some frames are off, in a random direction."""

    one_in: int
    off_m: float

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Report it."""
        off = moment.rng.normal(size=3)
        off *= self.off_m / np.linalg.norm(off)
        return Pose(pose.position + off, pose.rotation) if moment.rng.random() < 1.0 / self.one_in else pose


@dataclass
class LookAlike(Fault):
    """Another thing on the table is taken for the object for a while."""

    for_s: float
    away_m: float

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Report it."""
        if not 0.0 <= moment.since_s - self.at_s < self.for_s:
            return pose
        if not self.done:
            self.done, self.other = True, nudged(pose, self.away_m, moment.rng)
        return Pose(self.other.position + moment.rng.normal(0.0, 0.0005, 3), self.other.rotation)


@dataclass
class Flips(Fault):
    """A tag's second solution: some frames are tilted."""

    one_in: int
    by_rad: float

    def see(self, moment: Moment, pose: Pose) -> Pose | None:
        """Report it."""
        if moment.rng.random() >= 1.0 / self.one_in:
            return pose
        angle = moment.rng.uniform(-np.pi, np.pi)
        tilt = rotation_matrix(self.by_rad * np.array([np.cos(angle), np.sin(angle), 0.0]))
        return Pose(pose.position, tilt @ pose.rotation)


@dataclass
class Nudged(Fault):
    """Somebody moves the object on the table once, in view or while the hand hides it."""

    by_m: float
    hidden: bool = False

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Put it there."""
        near = float(np.linalg.norm(pose.position - moment.tool)) < HIDDEN_M
        due = near and moment.tool[2] > pose.position[2] + 0.03 if self.hidden else moment.since_s >= self.at_s
        if self.done or moment.held or not due:
            return None
        self.done = True
        return nudged(pose, self.by_m, moment.rng)


class Rolled(Fault):
    """Somebody rolls the object onto its side."""

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Put it there."""
        if self.done or moment.held or moment.since_s < self.at_s:
            return None
        self.done = True
        axis = rotation_matrix([np.pi / 2, 0.0, 0.0] if moment.rng.random() < 0.5 else [0.0, np.pi / 2, 0.0])
        return Pose(pose.position, pose.rotation @ axis)


class OffTheTable(Fault):
    """The object leaves the table."""

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Put it there."""
        if self.done or moment.held or moment.since_s < self.at_s:
            return None
        self.done = True
        return Pose(pose.position + np.array([1.0, 0.0, 0.0]), pose.rotation)


class TakenOut(Fault):
    """Somebody takes the object out of the hand and puts it somewhere else on the patch."""

    def move(self, moment: Moment, pose: Pose) -> Pose | None:
        """Put it there."""
        if self.done or not moment.held:
            return None
        self.done = True
        return Pose(np.array([moment.rng.uniform(-0.15, 0.15), moment.rng.uniform(0.4, 0.6), 0.02]), np.eye(3))


FAULTS: Mapping[str, Callable[[], Fault]] = {
    "plain simulation": Fault,
    "silent for 0.2 s, once": lambda: Silent(0.2),
    "silent for 0.4 s, once": lambda: Silent(0.4),
    "silent for 0.7 s, once": lambda: Silent(0.7),
    "silent for 1 s, once": lambda: Silent(1.0),
    "hangs for 0.35 s every 2 s": lambda: Silent(0.35, 2.0),
    "hangs for 0.2 s every 0.6 s": lambda: Silent(0.2, 0.6),
    "an old picture with new stamps for 0.3 s": lambda: Frozen(0.3),
    "an old picture for 1 s": lambda: Frozen(1.0),
    "an old picture for 3 s, the object nudged by 45 mm": lambda: Frozen(3.0, 0.045),
    "one frame in fifty off by 25 mm": lambda: Odd(50, 0.025),
    "one frame in fifty off by 50 mm": lambda: Odd(50, 0.05),
    "one frame in ten off by 50 mm": lambda: Odd(10, 0.05),
    "one frame in fifty off by 200 mm": lambda: Odd(50, 0.2),
    "a look-alike for 0.3 s, 50 mm away": lambda: LookAlike(0.3, 0.05),
    "a look-alike for 0.3 s, 200 mm away": lambda: LookAlike(0.3, 0.2),
    "a look-alike for 1 s, 100 mm away": lambda: LookAlike(1.0, 0.1),
    "one frame in ten flipped by 30 degrees": lambda: Flips(10, 0.52),
    "nudged by 45 mm in view": lambda: Nudged(0.045),
    "nudged by 25 mm while hidden": lambda: Nudged(0.025, hidden=True),
    "nudged by 45 mm while hidden": lambda: Nudged(0.045, hidden=True),
    "nudged by 100 mm while hidden": lambda: Nudged(0.1, hidden=True),
    "rolled onto its side": Rolled,
    "off the table": OffTheTable,
    "taken out of the hand": TakenOut,
}


def nudged(pose: Pose, by_m: float, rng: np.random.Generator) -> Pose:
    """Return a pose moved over the table by a distance, towards the middle of the patch, more or less."""
    middle = np.array([0.0, 0.5]) - pose.position[:2]
    angle = np.arctan2(middle[1], middle[0]) + rng.uniform(-1.0, 1.0)
    return Pose(pose.position + by_m * np.array([np.cos(angle), np.sin(angle), 0.0]), pose.rotation)


class SimulatedTracker(ObjectTracker):
    """What a simulated camera sees, passed through a fault and the checks of a physical cell's tracker."""

    def __init__(self, camera: Objects, robot: MujocoRobot, fault: Fault, bounds: ObjectBounds) -> None:
        super().__init__((OBJECT,), TrackerConfig(), bounds)
        self._camera, self._robot, self._fault = camera, robot, fault
        self.held: Callable[[], bool] = lambda: False
        self._number = 0

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the object; the tracker saw it there for some time."""
        self._rng = np.random.default_rng(seeding.integer(SEED, seeding.Stream.EVALUATION_EPISODES, self._number))
        self._number += 1
        self._began = self._robot.now()
        self._seen.clear()
        self._last_refused.clear()
        self._fault.begin(self._rng)
        lying = self._camera.arrange(poses)
        self._count = -1
        for step in range(30):
            self._show(lying[OBJECT], 0.05 + (30 - step) / 30)
        return lying

    def read(self) -> Mapping[str, Sighting]:
        """Move the object if the fault does, and return what the tracker accepted."""
        truth = self._robot.object_poses()[OBJECT]
        moment = Moment(self._robot.now() - self._began, self._robot.tool_position(), self.held(), self._rng)
        if (put := self._fault.move(moment, truth)) is not None:
            self._robot.place({OBJECT: put})
        sighting = self._camera.read()[OBJECT]
        if sighting.number != self._count:
            self._count = sighting.number
            if (pose := self._fault.see(moment, sighting.pose)) is not None:
                self._show(pose, sighting.age_s)
        return super().read()

    def _show(self, pose: Pose, age_s: float) -> None:
        noise = self._rng.normal(0.0, 1e-5, 3) if self._count < 0 else 0.0
        stamp = self._clock() - age_s
        raw = Report(OBJECT, stamp, pose.position + noise, quaternion(pose.rotation))
        self._take(raw, self._now() if self._count >= 0 else stamp, self._clock() if self._count >= 0 else stamp)

    def truth(self) -> Mapping[str, Pose] | None:
        """Return the true pose."""
        return self._robot.object_poses()

    def close(self) -> None:
        """Close the camera."""
        self._camera.close()

    @property
    def _where(self) -> str:
        return "the simulation"

    def _start(self) -> None:
        """There is nothing to start."""

    def _parse(self, raw: Any) -> Report:
        assert isinstance(raw, Report)
        return raw

    def _now(self) -> float:
        return self._robot.now()

    def _clock(self) -> float:
        return EPOCH_S + self._robot.now()


def play(policy: Path, name: str, episodes: int) -> Counter[str]:
    """Play a policy with one fault, and count how its episodes ended."""
    place = find(policy)
    trained = Checkpoint(place).config().environment
    assert isinstance(trained, RobotEnvironmentConfig)
    made = make_robot_env(trained.model_copy(update={"disturbance": CAMERA}))
    (cell,), setting = made.batch.cells, made.batch.setting
    robot = cell.robot.robot  # type: ignore[attr-defined]  # the simulation behind its disturbances
    tracker = SimulatedTracker(cell.objects, robot, FAULTS[name](), object_bounds(trained, robot.spec))
    environment = RobotEnv(RobotBatch([cell._replace(objects=tracker)], setting))
    tracker.held = lambda: environment.seen.held is not None
    player, ends = Player(environment, load_policy(place).act), Counter[str]()
    for number in range(episodes):
        figures = player.begin(number, seeding.integer(SEED, seeding.Stream.EVALUATION_EPISODES, number))
        while not player.step():
            pass
        ends["success" if figures.success else figures.fault or (figures.failure and figures.failure.kind) or "?"] += 1
    environment.close()
    return ends


def row(name: str, ends: Counter[str], plain: Counter[str]) -> str:
    """Lay out one line of the table."""
    episodes, stops = ends.total(), {end: count for end, count in ends.items() if " " in end}
    why = next(iter(stops), "")
    failed = ", ".join(f"{count} {kind}" for kind, count in ends.items() if kind != "success" and kind not in stops)
    return (
        f"| {name} | {ends['success']} of {episodes} | {ends['success'] - plain['success']:+d} | "
        f"{sum(stops.values())} | {failed} | {why} |"
    )


def main() -> None:
    """Play, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="+", type=Path, default=[Path("ur5e_grasp")])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS), metavar="FAULT")
    arguments = parser.parse_args()
    names: Sequence[str] = list(dict.fromkeys([next(iter(FAULTS)), *arguments.faults]))
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        for policy in arguments.policies:
            under_way = {name: pool.submit(play, policy, name, arguments.episodes) for name in names}
            print(f"\n{policy}\n\n| what happened | success | beside plain | stopped | failed | the sentence |")
            print("|---|---|---|---|---|---|")
            plain = under_way[names[0]].result()
            for name in names:
                print(row(name, under_way[name].result(), plain), flush=True)


if __name__ == "__main__":
    main()
