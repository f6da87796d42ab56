"""An arm's kinematics by the Robotics Toolbox, from its numbers alone."""

import numpy as np

from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Tools
from td3robot.state import Array, Pose


class ToolboxKinematics:
    """An arm built from its numbers by the Robotics Toolbox: independent of MuJoCo.

    Importing the toolbox takes over a second, so make this class only where it is needed.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._assemble(spec)

    def adopt(self, spec: RobotSpec) -> None:
        """Use the connected robot's calibrated kinematics."""
        if spec is not self.spec:
            self._assemble(spec)

    def _assemble(self, spec: RobotSpec) -> None:
        self.spec = spec
        from roboticstoolbox import ET
        from roboticstoolbox.ets.ETS import ETS

        arm = spec.arm
        make = {"tx": ET.tx, "ty": ET.ty, "tz": ET.tz, "Rx": ET.Rx, "Ry": ET.Ry, "Rz": ET.Rz}
        steps = [make[axis](value) for axis, value in arm.chain.links[0]]
        for link, lower, upper in zip(arm.chain.links[1:], arm.lower, arm.upper, strict=True):
            steps.append(ET.Rz(qlim=np.array([lower, upper])))
            steps += [make[axis](value) for axis, value in link]
        self._ets = ETS([*steps, ET.tz(spec.tcp_offset_m)])

    def tcp(self, q: Array) -> Pose:
        """Compute the pose of the tool centre point at joint angles q (n,) [rad]."""
        transform = self._ets.eval(q)
        return Pose(transform[:3, 3].copy(), transform[:3, :3].copy())

    def tools(self, q: Array) -> Tools:
        """Compute the tools of m postures q (m, n) [rad]."""
        poses = [self.tcp(row) for row in q]
        jacobians = np.array([np.asarray(self._ets.jacob0(row)) for row in q])
        return Tools(
            np.array([pose.position for pose in poses]), np.array([pose.rotation for pose in poses]), jacobians
        )
