"""How gently objects are handled: figures that need the truth of a simulation, read once a control period."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.robots.simulated.scene import GRIPPER_PREFIX
from td3robot.row_math import apart
from td3robot.state import Array

# What lies further from the tool is out of the hand's reach: if it moves, somebody else moved it [m].
REACH_M = 0.12


@dataclass(slots=True)
class EpisodeHandling:
    """How the objects of one episode were handled.

    Attributes:
        push_m: How far an object was moved over the table before both fingers first touched it, at most.
        force_before_grip_n, force_n: Largest normal force of a part of the gripper on an object: before both fingers
            first touched it, and in the whole episode.
    """

    push_m: float = 0.0
    force_before_grip_n: float = 0.0
    force_n: float = 0.0


class Handling:
    """Looks at the contacts between gripper and objects, at the end of each control period.

    Args:
        robot: With objects.
    """

    def __init__(self, robot: MujocoRobot) -> None:
        self._robot = robot
        self._names = [item.name for item in robot.object_models]
        self._force = np.zeros(6)

    def begin(self) -> EpisodeHandling:
        """Note where the objects lie, and return the figures that this episode will fill."""
        self.figures = EpisodeHandling()
        self._gripped, self._lay = set[str](), self._places()
        return self.figures

    def look(self) -> None:
        """Add what the last period did."""
        places, tool = self._places(), self._robot.tool_position()
        touches = self._touches()
        for name in self._names:
            parts = touches.get(name, {})
            force = max((force for force, _ in parts.values()), default=0.0)
            self.figures.force_n = max(self.figures.force_n, force)
            if sum(is_pad for _, is_pad in parts.values()) > 1:
                self._gripped.add(name)
            if name in self._gripped:
                continue
            self.figures.force_before_grip_n = max(self.figures.force_before_grip_n, force)
            if apart(places[name], tool) > REACH_M:
                self._lay[name] = places[name]
            way = places[name][:2] - self._lay[name][:2]
            self.figures.push_m = max(self.figures.push_m, float(np.hypot(*way)))

    def _places(self) -> dict[str, Array]:
        return {name: pose.position for name, pose in self._robot.object_poses().items()}

    def _touches(self) -> dict[str, dict[int, tuple[float, bool]]]:
        """Return, by object and body of the gripper, the normal force [N], and whether the body is a finger's pad."""
        model, data, pads = self._robot.model, self._robot.data, self._robot.spec.gripper.pads
        assert model is not None
        found: dict[str, dict[int, tuple[float, bool]]] = {}
        for index in range(data.ncon):
            one, other = (model.geom(int(geom)) for geom in data.contact[index].geom)
            item, hand = (one, other) if one.name in self._names else (other, one)
            if item.name not in self._names or not model.body(hand.bodyid[0]).name.startswith(GRIPPER_PREFIX):
                continue
            mujoco.mj_contactForce(model, data, index, self._force)
            body = int(hand.bodyid[0])
            force, is_pad = found.setdefault(item.name, {}).get(body, (0.0, False))
            found[item.name][body] = force + float(self._force[0]), is_pad or pads in hand.name
        return found


def handling_of(environment: Any) -> Handling | None:
    """Return what looks at an environment's contacts; None on an arm, without contacts, and without objects."""
    robot = getattr(environment.unwrapped, "robot", None)
    simulated = getattr(robot, "robot", robot)  # a disturbed robot wraps the one that has the contacts
    if not isinstance(simulated, MujocoRobot) or not simulated.object_models:
        return None
    return Handling(simulated)
