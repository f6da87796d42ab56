"""Calibration of the arm behind the ports, which, like any real arm, does not quite match its data sheet."""

from typing import Literal

import numpy as np

from td3robot.robots.arms.model import ArmModel
from td3robot.robots.ur.calibration import DhParameters
from td3robot.simulators.settings import CalibrationConfig


def own_parameters(arm: ArmModel, config: CalibrationConfig | Literal["off"]) -> DhParameters | None:
    """Return the parameters of the arm that the settings describe, or None for the nominal one."""
    return drawn_parameters(arm, config) if isinstance(config, CalibrationConfig) else None


def drawn_parameters(arm: ArmModel, config: CalibrationConfig) -> DhParameters:
    """Draw the Denavit-Hartenberg parameters of one particular arm around its nominal ones.

    Every length and angle is off by a normal deviate, except the sixth joint's ``a`` and ``alpha``: the arm ends at the
    flange, and calibrations of real arms have zeros there.
    """
    rng, nominal = np.random.default_rng(config.seed), DhParameters.of(arm.chain)

    def drawn(values: tuple[float, ...], sigma: float, kept: int = 0) -> tuple[float, ...]:
        """Return the values with deviates added, except the last ``kept`` of them."""
        deviates = sigma * rng.standard_normal(len(values))
        deviates[len(values) - kept :] = 0.0
        return tuple((np.array(values) + deviates).tolist())

    return DhParameters(
        theta=drawn(nominal.theta, config.angle_rad),
        a=drawn(nominal.a, config.length_m, kept=1),
        d=drawn(nominal.d, config.length_m),
        alpha=drawn(nominal.alpha, config.angle_rad, kept=1),
    )
