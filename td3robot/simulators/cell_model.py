"""CellModel by which cells differ: servo, tool, gripper, camera and network.

Nothing here is taken from the training simulation. docs/standin.md has the source of each range, and states what is
assumed.
"""

from typing import Annotated, Literal

from pydantic import Field

from td3robot.config import NonNegative, Section

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Damping = Annotated[float, Field(ge=0.2, le=5.0)]
Offset = Annotated[float, Field(ge=-0.05, le=0.05)]


class ServoModel(Section):
    """How the controller follows servoJ.

    Attributes:
        damping: Damping ratio of each joint at a gain of 300; below 1 it overshoots, and more so with a higher gain.
            None follows with a first-order lag, which cannot overshoot.
        transport_s: Delay from the arrival of a target to the first motion towards it.
        blocks: Whether servoJ blocks the calling thread for its time, stretched by speed scaling. Then only the newest
            of the targets that arrive meanwhile is used, or the old one again if none arrived. Otherwise every target
            is used as it arrives.
    """

    damping: tuple[Damping, ...] | None = None
    transport_s: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    blocks: bool = False


class LimitModel(Section):
    """Speeds above which the controller slows every trajectory down (speed scaling); None is no limit.

    Attributes:
        joint_rad_s: Speed of the fastest joint.
        tool_m_s: Speed of the tool centre point.
    """

    joint_rad_s: Annotated[float, Field(ge=0.05, le=10.0)] | None = None
    tool_m_s: Annotated[float, Field(ge=0.02, le=5.0)] | None = None


class FrictionModel(Section):
    """Friction in the joints that the controller does not compensate.

    Attributes:
        stick_rad: Coulomb friction over the servo's stiffness: how far from its target a joint may rest.
        viscous_s: Viscous friction over the servo's stiffness: how much later a joint follows a ramp.
    """

    stick_rad: Annotated[float, Field(ge=0.0, le=0.005)] = 0.0
    viscous_s: Annotated[float, Field(ge=0.0, le=0.05)] = 0.0


class ToolModel(Section):
    """What the controller does not know about the tool.

    Attributes:
        payload_kg: Mass in addition to the gripper's.
        longer_m: How much further from the flange the tool centre point really is.
    """

    payload_kg: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    longer_m: Offset = 0.0


class GripperTiming(Section):
    """How the gripper responds to its registers.

    Attributes:
        latency_s: Delay from a written position to the first motion of the fingers.
        pause_s: How long the fingers pause for each new position that arrives while they move.
        fastest: Its top speed as a share of the data sheet's.
    """

    latency_s: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    pause_s: Annotated[float, Field(ge=0.0, le=0.2)] = 0.0
    fastest: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class CameraModel(Section):
    """How a vision system reports object poses.

    Attributes:
        rate_hz: Frames a second.
        latency_s: Delay from the exposure to the datagram.
        jitter_s: Largest extra delay, drawn for each frame.
        drop: Share of frames that never arrive.
        hidden_m: The hand hides an object that is nearer than this to the tool centre point.
        noise_m: Standard deviation of every coordinate of every position.
        offset_m: Error of the camera's frame.
        stamped: What a pose's stamp means: when its frame was exposed, or when its datagram was sent.
    """

    rate_hz: Annotated[float, Field(ge=1.0, le=500.0)] = 60.0
    latency_s: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    jitter_s: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    drop: Share = 0.0
    hidden_m: NonNegative = 0.0
    noise_m: Annotated[float, Field(ge=0.0, le=0.05)] = 0.0
    offset_m: tuple[Offset, Offset, Offset] = (0.0, 0.0, 0.0)
    stamped: Literal["exposed", "sent"] = "exposed"

    @property
    def settled_s(self) -> float:
        """Time after which no pose from before an object was moved arrives any more, even if frames are lost [s]."""
        return self.latency_s + self.jitter_s + 5.0 / self.rate_hz


class NetworkModel(Section):
    """What the network does to RTDE packages, each way.

    Attributes:
        delay_s, jitter_s: Delay of every package, plus up to ``jitter_s``, drawn for each.
        hiccup, hiccup_s: Share of packages that are late by this much, and with them all that follow.
    """

    delay_s: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    jitter_s: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    hiccup: Share = 0.0
    hiccup_s: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0


class CellModel(Section):
    """One cell. The defaults are what the training simulation assumes."""

    servo: ServoModel = ServoModel()
    limits: LimitModel = LimitModel()
    friction: FrictionModel = FrictionModel()
    tool: ToolModel = ToolModel()
    gripper: GripperTiming = GripperTiming()
    camera: CameraModel = CameraModel()
    network: NetworkModel = NetworkModel()


# What the training simulation assumes.
NOMINAL = CellModel()
