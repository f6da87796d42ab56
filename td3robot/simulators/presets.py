"""Cells to rehearse in: some named ones that users describe, and any number drawn from a seed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from td3robot.errors import ConfigError, choose
from td3robot.simulators.cell_model import NOMINAL as NOMINAL_MODEL
from td3robot.simulators.cell_model import (
    CameraModel,
    CellModel,
    FrictionModel,
    GripperTiming,
    LimitModel,
    NetworkModel,
    ServoModel,
    ToolModel,
)
from td3robot.simulators.settings import CalibrationConfig

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
    cell_model: CellModel = NOMINAL_MODEL
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    stream_hz: int | None = None

    def settings(self) -> dict[str, Any]:
        """Return the cell as fields of :class:`~td3robot.simulators.settings.ControllerConfig`."""
        return {"cell_model": self.cell_model, "calibration": self.calibration}

    def differences(self) -> dict[str, Any]:
        """Return every value that differs from the training simulation's, by its dotted name."""
        found: dict[str, Any] = {}
        for section in CellModel.model_fields:
            mine, theirs = getattr(self.cell_model, section), getattr(NOMINAL_MODEL, section)
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
                servo=ServoModel(damping=(0.9, 0.9, 0.9, 1.0, 1.0, 1.0), transport_s=0.004, blocks=True),
                friction=FrictionModel(stick_rad=0.0002, viscous_s=0.002),
                gripper=GripperTiming(latency_s=0.02),
                camera=CameraModel(rate_hz=60.0, latency_s=0.025, jitter_s=0.005, noise_m=0.0003),
            ),
            CalibrationConfig(seed=1, length_m=2e-4, angle_rad=3e-4),
            stream_hz=500,
        ),
        Preset(
            "worn",
            "an arm of many years on 125 Hz: softer joints that overshoot and stick, a tool nobody measured again",
            CellModel(
                servo=ServoModel(damping=(0.55, 0.5, 0.55, 0.7, 0.7, 0.8), transport_s=0.012, blocks=True),
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
            CellModel(servo=ServoModel(damping=(0.7,) * 6, blocks=True), limits=LimitModel(tool_m_s=0.25)),
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

    damping = between(0.55, 1.2, 2)
    cell_model = CellModel(
        servo=ServoModel(
            # The joints that carry the arm are the softer ones.
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
