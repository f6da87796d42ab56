"""Forward kinematics for the worker's loop, in plain Python: does the reported tool pose belong to the joint angles?

A pose is twelve numbers: the three columns of its rotation, then the position [m]. It costs about 30 us.
"""

from collections.abc import Sequence
from math import acos, cos, hypot, sin, sqrt

from td3robot.robots.driver.link import StoppedError

# Twice what the check of a robot at rest allows (5 mm and 0.03 rad, in deploy/check.py), which covers a data sheet's
# kinematics that differ from the arm's own by a few millimetres [m, rad].
TOOL_M, TOOL_RAD = 0.01, 0.06

Pose = Sequence[float]


class ToolCheck:
    """Compare a controller's reported tool pose with that of its reported joint angles.

    Args:
        links: n + 1 fixed poses (12,) of the arm's chain: from the base to the first joint, from each joint to the
            next, and from the last joint to the tool centre point.
    """

    def __init__(self, links: Sequence[Pose]) -> None:
        self._links = [tuple(link) for link in links]

    def pose(self, q: Sequence[float]) -> Pose:
        """Compute the tool's pose (12,) in the base frame at joint angles q (n,) [rad]."""
        pose: Pose = self._links[0]
        for angle, link in zip(q, self._links[1:], strict=True):
            pose = _times(_turned(pose, angle), link)
        return pose

    def require(self, q: Sequence[float], reported: Pose) -> None:
        """Require that a reported pose (12,) matches joint angles q (n,) [rad].

        Raises:
            StoppedError: It does not; one of the two is wrong.
        """
        ours = self.pose(q)
        away = hypot(*(a - b for a, b in zip(ours[9:], reported[9:], strict=True)))
        turned = acos(
            min(max((sum(a * b for a, b in zip(ours[:9], reported[:9], strict=True)) - 1.0) / 2.0, -1.0), 1.0)
        )
        if not (away <= TOOL_M and turned <= TOOL_RAD):
            raise StoppedError(
                f"the controller reports its tool {1e3 * away:.3g} mm and {turned:.3f} rad away from where its joint "
                f"angles put it (limits {1e3 * TOOL_M:g} mm, {TOOL_RAD:g} rad): a joint angle, the tool set at the "
                "controller or the arm's calibration is wrong"
            )


def pose_of(position: Sequence[float], vector: Sequence[float]) -> tuple[float, ...]:
    """Return the pose (12,) of a position (3,) [m] and a rotation vector (3,) [rad]."""
    angle = sqrt(sum(value * value for value in vector))
    if angle < 1e-12:
        return (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, *position)
    x, y, z = (value / angle for value in vector)
    c, s = cos(angle), sin(angle)
    d = 1.0 - c
    return (
        c + x * x * d, y * x * d + z * s, z * x * d - y * s,
        x * y * d - z * s, c + y * y * d, z * y * d + x * s,
        x * z * d + y * s, y * z * d - x * s, c + z * z * d,
        *position,
    )  # fmt: skip


def _turned(pose: Pose, angle: float) -> Pose:
    """Return a pose turned about its own z axis by an angle [rad]."""
    c, s = cos(angle), sin(angle)
    a, b, d, e, f, g, *rest = pose
    return (c * a + s * e, c * b + s * f, c * d + s * g, c * e - s * a, c * f - s * b, c * g - s * d, *rest)


def _times(pose: Pose, link: Pose) -> Pose:
    """Return the composition of two poses."""
    a, b, c, d, e, f, g, h, i, x, y, z = pose
    turned = [(a * u + d * v + g * w, b * u + e * v + h * w, c * u + f * v + i * w) for u, v, w in zip(
        link[0::3], link[1::3], link[2::3], strict=True
    )]  # fmt: skip
    (ox, oy, oz) = turned[3]
    return (*turned[0], *turned[1], *turned[2], ox + x, oy + y, oz + z)
