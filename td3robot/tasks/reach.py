"""Reach: bring the tool centre point to a goal, and rest there."""

import numpy as np
from numpy.typing import ArrayLike

from td3robot.config import ReachConfig
from td3robot.layout import Field, Layout
from td3robot.robots.interface import RobotSpec
from td3robot.state import World
from td3robot.tasks.interface import Goal, Moment, Score, Task, observe_robot, robot_fields
from td3robot.tasks.shaping import log_shortfall, nearness, roughness

# Beyond this distance the distance term no longer falls: about the diagonal of the default goal box [m].
FAR = 0.9
# Where the precision term has fallen to a third, in tolerances.
PRECISION_SCALE = 2.0


class Reach(Task):
    """Reward terms, each times its weight, with d the distance of tool and goal:

    * ``distance``: ``-log(1 + d / tolerance) / log(1 + 0.9 m / tolerance)``, at least -1
    * ``precision``: ``exp(-(d / (2 tolerance))^2)``
    * ``settled``: 1 where d is within tolerance and the tool is at rest, else 0
    * ``smoothness``: minus the mean squared change of the action over 4
    * ``guard``: -1 where the guard changed the wish
    """

    name = "reach"
    uses_gripper = False

    def __init__(self, config: ReachConfig, spec: RobotSpec) -> None:
        self.config = config
        self.hold_steps = config.hold_steps
        xyz = ("x", "y", "z")
        self.layout = Layout(
            [
                *robot_fields(spec),
                Field("tcp_position", xyz, "m", "kinematics"),
                Field("goal_from_tcp", xyz, "m", "task"),
                Field("commanded_from_tcp", xyz, "m", "guard"),
            ]
        )

    def sample(self, rng: np.random.Generator) -> Goal:
        """Draw goal and start, each uniformly from the box of goals."""
        box = self.config.goals
        return Goal(position=rng.uniform(box.low, box.high), start=rng.uniform(box.low, box.high))

    def observe(self, world: World, goal: Goal) -> dict[str, ArrayLike]:
        """Add the tool's position, the goal seen from it, and where the servo is still going."""
        tcp = world.tcp.position
        return {
            **observe_robot(world),
            "tcp_position": tcp,
            "goal_from_tcp": goal.position - tcp,
            "commanded_from_tcp": world.commanded_tcp.position - tcp,
        }

    def score(self, moment: Moment, goal: Goal) -> Score:
        """Judge one control period by the measured tool position and speed."""
        config, weights, world = self.config, self.config.rewards, moment.world
        distance = float(np.linalg.norm(goal.position - world.tcp.position))
        speed = float(np.linalg.norm(world.tcp_velocity))
        achieved = distance <= config.tolerance_m and speed <= config.settle_speed_m_s
        terms = {
            "distance": weights.distance * log_shortfall(distance, config.tolerance_m, FAR),
            "precision": weights.precision * nearness(distance, PRECISION_SCALE * config.tolerance_m),
            "settled": weights.settled * float(achieved),
            "smoothness": -weights.smoothness * roughness(moment.action, moment.previous_action),
            "guard": -weights.guard * float(bool(moment.interventions)),
        }
        return Score(terms, achieved, distance)
