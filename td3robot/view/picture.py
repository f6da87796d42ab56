"""The cell's MuJoCo model for viewing, without dynamics."""

import mujoco
import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.simulated.scene import TCP_SITE, place_cell, simulation_spec
from td3robot.state import Array, JointCommand, Pose, RobotState
from td3robot.view.source import Snapshot, Workcell

# Pose of an object that is not observed: out of sight.
AWAY = Pose(np.array([0.0, 0.0, -50.0]), np.eye(3))
# Visible geometry groups; collision-only geometry is in group 3.
SEEN_GROUPS = (0, 1, 2)
HIDDEN_GROUP = 4


class Picture:
    """An arm, its gripper, the table and the objects.

    Attributes:
        model: Model of the whole cell.
        measured, commanded: Its data in the measured and the commanded posture.
    """

    def __init__(self, workcell: Workcell) -> None:
        self._spec = workcell.spec
        self._away = {item.name: AWAY for item in workcell.objects}
        scene = simulation_spec(workcell.spec, 500, workcell.objects)
        for site in scene.sites:
            site.group = HIDDEN_GROUP
        scene.delete(scene.geom("floor"))  # it is infinite, and a page draws its own
        self.model = scene.compile()
        self.measured, self.commanded = mujoco.MjData(self.model), mujoco.MjData(self.model)
        self._tool = self.model.site(TCP_SITE).id
        self.place(Snapshot(at_home(workcell.spec)))

    def place(self, snapshot: Snapshot) -> None:
        """Place everything as in a snapshot."""
        state = snapshot.state
        objects = self._away | dict(snapshot.objects)
        place_cell(self.model, self.measured, self._spec, state.q, state.driver_q, objects)
        gripper = self._spec.gripper
        self._command = snapshot.commanded or JointCommand(state.q, gripper.closed_fraction(state.driver_q))
        drivers = gripper.drivers_at(self._command.gripper)
        place_cell(self.model, self.commanded, self._spec, self._command.q, drivers, {})

    def commanded_posture(self) -> tuple[Array, float]:
        """Return the last commanded joint angles (n,) [rad] and closed fraction."""
        return self._command.q, self._command.gripper

    def tool(self) -> Pose:
        """Return the measured pose of the tool centre point."""
        return Pose(
            self.measured.site_xpos[self._tool].copy(), self.measured.site_xmat[self._tool].reshape(3, 3).copy()
        )

    def seen_geoms(self, bodies: list[int] | None = None) -> list[int]:
        """Return the visible geometries of some bodies, or of all."""
        model = self.model
        return [
            geom
            for geom in range(model.ngeom)
            if model.geom_group[geom] in SEEN_GROUPS and (bodies is None or model.geom_bodyid[geom] in bodies)
        ]

    def arm_bodies(self) -> list[int]:
        """Return the bodies of arm and gripper that move with the joints and have visible geometry."""
        model = self.model
        first = model.joint(self._spec.arm.joint_names[0]).id
        moving = {int(model.jnt_bodyid[first])}
        for body in range(model.nbody):
            if int(model.body_parentid[body]) in moving:
                moving.add(body)
        return [body for body in sorted(moving) if self.seen_geoms([body])]


def at_home(spec: RobotSpec) -> RobotState:
    """Return the state of the arm at home, at rest, with its gripper open."""
    home = spec.arm.home
    return RobotState(home, np.zeros_like(home), spec.gripper.drivers_at(0.0), 0.0)


def camera_pose(workcell: Workcell, distance: float) -> tuple[Array, Array]:
    """Return where a camera stands (3,) and looks (3,) to show the workspace from the side and from above [m].

    Args:
        workcell: What to look at.
        distance: In diagonals of the workspace.
    """
    low, high = np.array(workcell.workspace.low), np.array(workcell.workspace.high)
    middle = (low + high) / 2
    ahead = middle[:2] / max(float(np.linalg.norm(middle[:2])), 1e-9)
    side = np.array([1.15 * ahead[1] - 0.5 * ahead[0], -1.15 * ahead[0] - 0.5 * ahead[1], 0.55])
    look = np.array([*(0.7 * middle[:2]), workcell.spec.table_height_m + 0.25])
    return look + distance * float(np.linalg.norm(high - low)) * side, look
