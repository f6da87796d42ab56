"""Rules by which a controller stops the arm by itself. They model UR's; docs/standin.md lists them."""

import numpy as np

from td3robot.config import Box
from td3robot.simulators.arm import SimulatedArm
from td3robot.state import Array

# How much further beyond a plane than when unlocked the tool may go while it is moved out [m].
EXCUSED_M = 0.002
# Factor by which a UR's safety configuration exceeds the joint speed of its data sheet: 191 deg/s for 180 deg/s.
SAFETY_SHARE = 191.0 / 180.0
# The tool speed limit of the same configuration. The others are this project's assumptions: the largest step between
# two servoJ targets and the largest distance from the controller's target posture, for any joint, and the force between
# arm or gripper and anything that is not an object to handle.
MAX_TCP_SPEED_M_S, MAX_TARGET_JUMP_RAD, MAX_DEVIATION_RAD, MAX_CONTACT_FORCE_N = 1.5, 0.2, 0.1, 150.0


class Safety:
    """Watch the arm and its targets; the tool centre point stays above the table, and in a box if there is one."""

    def __init__(self, box: Box | None, arm: SimulatedArm) -> None:
        self._box, self._arm = box, arm
        self._max_speed = SAFETY_SHARE * arm.spec.arm.velocity
        self._excused_m = 0.0

    def excuse(self) -> None:
        """Tolerate the tool's present distance beyond a plane, so that it can be moved out."""
        self._excused_m = self._beyond()[0]

    def objection(self, reference: Array) -> str | None:
        """Return the limit that the arm breaks, or None.

        Args:
            reference: (6,) the controller's target posture [rad].
        """
        arm = self._arm
        excess = np.abs(arm.dq) - self._max_speed
        if excess.max() > 0.0:
            index = int(excess.argmax())
            return (
                f"{arm.spec.arm.joint_names[index]} at {abs(arm.dq[index]):.2f} rad/s is above the limit of "
                f"{self._max_speed[index]:.3g} rad/s"
            )
        tool = float(np.linalg.norm(arm.tcp_velocity()[:3]))
        if tool > MAX_TCP_SPEED_M_S:
            return f"the tool at {tool:.2f} m/s is above the limit of {MAX_TCP_SPEED_M_S:g} m/s"
        force = arm.contact_force()
        if force > MAX_CONTACT_FORCE_N:
            return f"collision with {force:.0f} N (limit {MAX_CONTACT_FORCE_N:g} N)"
        deviation = np.abs(arm.q - reference)
        if deviation.max() > MAX_DEVIATION_RAD:
            joint = arm.spec.arm.joint_names[int(deviation.argmax())]
            return f"{joint} is {deviation.max():.3f} rad from where it should be (limit {MAX_DEVIATION_RAD:g})"
        return self._objection_to_place()

    def objection_to_target(self, target: Array, before: Array) -> str | None:
        """Return why servoJ cannot follow a target (6,) [rad] after the previous one, or None."""
        model = self._arm.spec.arm
        jump = np.abs(target - before)
        if jump.max() > MAX_TARGET_JUMP_RAD:
            joint = model.joint_names[int(jump.argmax())]
            return f"servoJ target of {joint} jumped {jump.max():.3f} rad (limit {MAX_TARGET_JUMP_RAD:g} rad)"
        outside = (target < model.lower) | (target > model.upper)
        if outside.any():
            index = int(outside.argmax())
            return f"servoJ target of {model.joint_names[index]} at {target[index]:.3f} rad is outside the joint limits"
        return None

    def _objection_to_place(self) -> str | None:
        depth, where = self._beyond()
        if depth <= 0.0:
            self._excused_m = 0.0
            return None
        if depth <= self._excused_m + EXCUSED_M:
            return None
        return f"the tool centre point is {1e3 * depth:.1f} mm beyond the safety plane at {where}"

    def _beyond(self) -> tuple[float, str]:
        """Return how far the tool centre point is beyond the worst plane [m], and the plane's name."""
        position = self._arm.tcp().position
        planes = [(self._arm.spec.table_height_m - position[2], "the table")]
        box = self._box
        if box is not None:
            for axis, value, low, high in zip("xyz", position, box.low, box.high, strict=True):
                planes += [(low - value, f"{axis} = {low:g} m"), (value - high, f"{axis} = {high:g} m")]
        depth, where = max(planes)
        return float(depth), where
