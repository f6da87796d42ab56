"""Speed scaling: the controller slows a trajectory down that would be faster than its limits."""

from td3robot.standin.arm import SimulatedArm
from td3robot.standin.motion import Reference
from td3robot.standin.traits import LimitTraits

# A trajectory is never slowed down further than this.
SLOWEST = 0.01


class Limiter:
    """Watches how fast the controller's reference moves, and scales the time of what comes next.

    UR: the controller "scales the time (speed factor)" to keep a motion within the hardware or safety constraints, and
    servoj takes longer by it. That one factor holds for all joints, and that it is found from the speed of the period
    before, is assumed.

    Attributes:
        scale: What the controller reports as ``speed_scaling``: 1 at full speed.
    """

    def __init__(self, traits: LimitTraits, arm: SimulatedArm) -> None:
        self._traits, self._arm = traits, arm
        self.scale = 1.0

    def judge(self, reference: Reference) -> None:
        """Look at a period that was made at the present scale, and choose that of the next."""
        share = self._share(reference)
        self.scale = min(1.0, max(self.scale / share, SLOWEST)) if share > 0.0 else 1.0

    def _share(self, reference: Reference) -> float:
        """Return the reference's speed as a share of the limit that it is nearest to."""
        traits, share = self._traits, 0.0
        if traits.joint_rad_s is not None:
            share = float(abs(reference.v).max()) / traits.joint_rad_s
        if traits.tool_m_s is not None:
            share = max(share, self._arm.tool_speed_at(reference.q, reference.v) / traits.tool_m_s)
        return share
