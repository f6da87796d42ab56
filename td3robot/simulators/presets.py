"""What cells differ by (servo, tool, gripper, camera, network), some named ones, and any number drawn from a seed.

Nothing here is taken from the training simulation. docs/standin.md has the source of each range, and states what is
assumed.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from td3robot.config import NonNegative, Section
from td3robot.errors import ConfigError, choose

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Damping = Annotated[float, Field(ge=0.2, le=5.0)]
Offset = Annotated[float, Field(ge=-0.05, le=0.05)]


class ServoModel(Section):
    """How the controller follows servoJ.

    Attributes:
        damping: Factor on the damping ratio that gain and lookahead time give each joint (``robots/servo.py``);
            assumed, as no recording shows one. None is the law itself.
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
    """Friction in the joints that the controller does not compensate; assumed, as no recording shows any.

    Attributes:
        stick_rad: Coulomb friction over the motor's stiffness: how far from its target a joint may rest.
        viscous_s: Viscous friction over the motor's stiffness: how much later a joint follows a ramp.
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


class CalibrationConfig(Section):
    """How far the stand-in's own arm deviates from the nominal one, as every real arm does from its data sheet.

    The defaults move the tool by a millimetre or two; real arms differ by up to centimetres.

    Attributes:
        seed: Seed of the arm; another seed is another arm.
        length_m: Standard deviation of every length of the Denavit-Hartenberg parameters.
        angle_rad: Standard deviation of every angle.
    """

    seed: int = 0
    length_m: NonNegative = 3e-4
    angle_rad: NonNegative = 5e-4


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
NOMINAL_CELL = CellModel()


# A seed far from those of the named cells' arms.
FIRST_DRAWN = 1000


@dataclass(frozen=True)
class Preset:
    """One cell.

    Attributes:
        name: Its name on the command line.
        reason: Who has such a cell, in a sentence.
        cell_model: How it differs from the training simulation.
        calibration: From which its arm is drawn.
        stream_hz: How often its driver streams targets; None is the driver's default.
    """

    name: str
    reason: str
    cell_model: CellModel = NOMINAL_CELL
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    stream_hz: int | None = None

    def without_camera(self) -> "Preset":
        """Return the same cell with the camera that the training simulation assumes; another takes its place."""
        model = self.cell_model.model_copy(update={"camera": NOMINAL_CELL.camera})
        return self if model == self.cell_model else replace(self, cell_model=model)

    def settings(self) -> dict[str, Any]:
        """Return the cell as fields of :class:`~td3robot.simulators.settings.ControllerConfig`."""
        return {"cell_model": self.cell_model, "calibration": self.calibration}

    def differences(self) -> dict[str, Any]:
        """Return every value that differs from the training simulation's, by its dotted name."""
        found: dict[str, Any] = {}
        for section in CellModel.model_fields:
            mine, theirs = getattr(self.cell_model, section), getattr(NOMINAL_CELL, section)
            for name in type(mine).model_fields:
                if getattr(mine, name) != getattr(theirs, name):
                    found[f"{section}.{name}"] = getattr(mine, name)
        if self.stream_hz is not None:
            found["stream_hz"] = self.stream_hz
        return found


NOMINAL = Preset("nominal", "the training simulation's idea of an arm, so that only the wire is rehearsed")
NAMED = {
    cell.name: cell
    for cell in (
        NOMINAL,
        Preset(
            "new",
            "a new e-Series arm on 500 Hz, well calibrated, with a camera at 60 Hz",
            CellModel(
                servo=ServoModel(transport_s=0.004, blocks=True),
                gripper=GripperTiming(latency_s=0.02),
                camera=CameraModel(rate_hz=60.0, latency_s=0.025, jitter_s=0.005, noise_m=0.0003),
            ),
            CalibrationConfig(seed=1, length_m=2e-4, angle_rad=3e-4),
            stream_hz=500,
        ),
        Preset(
            "worn",
            "an arm of many years on 125 Hz: joints assumed to overshoot and stick, a tool nobody measured again",
            CellModel(
                servo=ServoModel(damping=(0.64, 0.58, 0.64, 0.81, 0.81, 0.92), transport_s=0.012, blocks=True),
                friction=FrictionModel(stick_rad=0.0008, viscous_s=0.006),
                tool=ToolModel(payload_kg=0.25, longer_m=0.002),
                gripper=GripperTiming(latency_s=0.05, fastest=0.8),
                camera=CameraModel(rate_hz=30.0, latency_s=0.05, jitter_s=0.01, noise_m=0.0005),
            ),
            CalibrationConfig(seed=2, length_m=6e-4, angle_rad=1e-3),
            stream_hz=125,
        ),
        Preset(
            "slow-gripper",
            "a gripper set to half its speed, which pauses for each position that is streamed to it",
            CellModel(gripper=GripperTiming(latency_s=0.1, pause_s=0.03, fastest=0.5)),
        ),
        Preset(
            "webcam",
            "a webcam beside the table: 15 Hz, late, one frame in ten lost, the hand in the way",
            CellModel(
                camera=CameraModel(
                    rate_hz=15.0, latency_s=0.12, jitter_s=0.03, drop=0.1, hidden_m=0.06, noise_m=0.001, stamped="sent"
                )
            ),
        ),
        Preset(
            "restricted",
            "a cell whose safety configuration allows the tool no more than 250 mm/s, and slows down what is faster",
            CellModel(servo=ServoModel(blocks=True), limits=LimitModel(tool_m_s=0.25)),
        ),
        Preset(
            "bad-network",
            "a switch shared with everything else in the building",
            CellModel(network=NetworkModel(delay_s=0.001, jitter_s=0.002, hiccup=0.0005, hiccup_s=0.012)),
        ),
    )
}


def preset(name: str) -> Preset:
    """Return the cell with a name, or draw the one of a seed.

    Raises:
        ConfigError: It is neither.
    """
    if name.isdecimal():
        return drawn(int(name))
    if name not in NAMED:
        raise ConfigError(f"{choose('cell', name, NAMED)}; or give a seed, a whole number from 0 on, to draw one")
    return NAMED[name]


def drawn(seed: int) -> Preset:
    """Draw a cell; every range is in docs/standin.md, with its source."""
    rng = np.random.default_rng(FIRST_DRAWN + seed)

    def between(low: float, high: float, digits: int = 4) -> float:
        """Draw a number, rounded for readability."""
        return round(float(rng.uniform(low, high)), digits)

    damping = between(0.64, 1.39, 2)
    cell_model = CellModel(
        servo=ServoModel(
            # Assumed, as is the friction: the joints that carry the arm swing more.
            damping=tuple(round(damping * factor, 2) for factor in (0.95, 0.9, 0.95, 1.1, 1.1, 1.2)),
            transport_s=between(0.002, 0.012),
            blocks=True,
        ),
        tool=ToolModel(payload_kg=between(0.0, 0.3, 2), longer_m=between(-0.002, 0.002)),
        gripper=GripperTiming(
            latency_s=between(0.01, 0.15, 3), pause_s=between(0.0, 0.03, 3), fastest=between(0.3, 1.0, 2)
        ),
        camera=CameraModel(
            rate_hz=float(rng.choice([15.0, 30.0, 60.0])),
            latency_s=between(0.02, 0.15, 3),
            jitter_s=between(0.0, 0.033, 3),
            drop=between(0.0, 0.1, 3),
            hidden_m=float(rng.choice([0.0, 0.05, 0.08])),
            noise_m=between(0.0002, 0.001),
            offset_m=(between(-0.002, 0.002), between(-0.002, 0.002), between(-0.001, 0.001)),
        ),
        network=NetworkModel(delay_s=between(0.0, 0.001), jitter_s=between(0.0, 0.001)),
    )
    calibration = CalibrationConfig(
        seed=FIRST_DRAWN + seed, length_m=between(2e-4, 8e-4), angle_rad=between(3e-4, 1e-3)
    )
    stream_hz = int(rng.choice([125, 500]))
    friction = FrictionModel(stick_rad=between(0.0, 0.001, 5), viscous_s=between(0.0, 0.008))
    limits = LimitModel(tool_m_s=float(rng.choice([0.25, 0.75, 1.5])))
    cell_model = cell_model.model_copy(update={"friction": friction, "limits": limits})
    return Preset(str(seed), f"drawn by the seed {seed}", cell_model, calibration, stream_hz)
