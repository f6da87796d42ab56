"""Speed scaling: the controller slows down a trajectory that would exceed its speed limits."""

from td3robot.simulators.arm import SimulatedArm
from td3robot.simulators.cell_model import LimitModel
from td3robot.simulators.motion import Reference

# A trajectory is never slowed down below this share.
SLOWEST = 0.01


class Limiter:
    """Watch how fast the controller's reference moves, and scale the time of what follows.

    UR: the controller "scales the time (speed factor)" to keep a motion within the hardware or safety constraints, and
    servoj takes longer by that factor. It is assumed that one factor holds for all joints, and that it follows from the
    speed of the previous period.

    Attributes:
        scale: The ``speed_scaling`` that the controller reports: 1 at full speed.
    """

    def __init__(self, model: LimitModel, arm: SimulatedArm) -> None:
        self._model, self._arm = model, arm
        self.scale = 1.0

    def judge(self, reference: Reference) -> None:
        """Choose the scale of the next period from the one just made at the present scale."""
        share = self._share(reference)
        self.scale = min(1.0, max(self.scale / share, SLOWEST)) if share > 0.0 else 1.0

    def _share(self, reference: Reference) -> float:
        """Return the reference's speed as a share of the nearest limit."""
        model, share = self._model, 0.0
        if model.joint_rad_s is not None:
            share = float(abs(reference.v).max()) / model.joint_rad_s
        if model.tool_m_s is not None:
            share = max(share, self._arm.tool_speed_at(reference.q, reference.v) / model.tool_m_s)
        return share
