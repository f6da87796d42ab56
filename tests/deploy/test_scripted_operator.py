"""The person's part in a rehearsal with two objects."""

from types import SimpleNamespace

import numpy as np

from td3robot.deploy.scripted_operator import PlacedObjects, ScriptedOperator
from td3robot.state import Pose
from td3robot.tasks.stack import StackConfig


class Lab:
    settled_s = 0.0
    config = SimpleNamespace(objects=StackConfig().objects())

    def __init__(self):
        self.placed = []

    def place(self, poses):
        self.placed.append(dict(poses))


def test_objects_are_placed_all_at_once_because_one_may_be_where_another_was():
    lab, poses = Lab(), {"object": Pose(np.zeros(3), np.eye(3)), "support": Pose(np.ones(3), np.eye(3))}
    PlacedObjects(SimpleNamespace(arrange=dict), lab).arrange(poses)
    assert lab.placed == [poses]


def test_objects_that_are_taken_away_do_not_lie_in_each_other():
    lab = Lab()
    ScriptedOperator(lab, print).take("take it")
    (poses,) = lab.placed
    assert np.linalg.norm(poses["object"].position - poses["support"].position) > 0.1
