"""States and goals of one row, worked out by hand, and several of them as the rows of a batch."""

from collections.abc import Mapping

import numpy as np

from td3robot.config import RobotConfig
from td3robot.config.objects import ObjectConfig
from td3robot.robots.interface import robot_spec
from td3robot.tasks.grasp import GraspConfig, numbers_of
from td3robot.tasks.interface import NOTHING_HELD, Goals, ObjectPoses, TaskState

# What the grasp task computes once for a 40 mm cube, with a UR5e that moves by 12.5 mm in a period.
CUBE = np.array(numbers_of(GraspConfig(), robot_spec(RobotConfig()), 0.0125, ObjectConfig()))


def poses(position, rotation, age_s=0.0):
    """Give the poses of an object in one row."""
    return ObjectPoses(np.asarray(position, float)[None], np.asarray(rotation, float)[None], np.array([float(age_s)]))


def state_of(joints=6, objects=None, **values):
    """Give a state of one row, where everything that is not named is zero, or upright, or nothing."""
    nothing = {
        **dict.fromkeys(("q", "dq", "commanded_q", "commanded_dq"), np.zeros(joints)),
        **dict.fromkeys(("tcp_position", "tcp_velocity", "commanded_position", "commanded_velocity"), np.zeros(3)),
        **dict.fromkeys(("tcp_rotation", "commanded_rotation"), np.eye(3)),
        "driver_q": np.zeros(2),
        "commanded_jacobian": np.zeros((6, joints)),
        "held": NOTHING_HELD,
        "numbers": CUBE,
    }
    row = dict.fromkeys(TaskState._fields, 0.0) | nothing | values
    return TaskState(**{name: np.asarray(value)[None] for name, value in row.items()} | {"objects": objects or {}})


def numbers_in(task):
    """Give what a task computes once for an episode, where every episode has the same object."""
    return task.sample(np.random.default_rng(0), practice=False).numbers


def goals_of(goal):
    """Give the goal of an episode as goals of one row."""
    objects = {name: poses(pose.position, pose.rotation) for name, pose in goal.objects.items()}
    return Goals(goal.position[None], goal.rotation[None], objects)


def together(rows):
    """Give states, goals or what else tasks exchange as one, with the rows of all."""
    first = rows[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(rows)
    if isinstance(first, Mapping):
        return {name: together([each[name] for each in rows]) for name in first}
    return type(first)(*(together(each) for each in zip(*rows, strict=True)))
