"""The arm, its gripper, what an action means, and the guard's limits."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from td3robot.config.section import Box, Fraction, Section
from td3robot.registry import ARMS, CELLS, GRIPPERS

SIMULATED = ("mujoco", "kinematic")


def _known_backend(name: str) -> str:
    if name not in SIMULATED and name not in CELLS:
        raise ValueError(CELLS.unknown(name, *SIMULATED))
    return name


class RobotConfig(Section):
    """The arm, its gripper, and the backend that moves them.

    Attributes:
        arm, gripper: Registered names: ``robots/arms/``, ``robots/grippers/``.
        backend: ``mujoco`` (dynamics and contact), ``kinematic`` (Robotics Toolbox, velocities integrated), or
            the name of a physical arm's cell (``robots/cells/``): ``ur``, ``franka``.
        control_rate_hz: How often the policy acts.
        physics_rate_hz: Physics steps a second; a multiple of the control rate. For simulations.
        coupling_thickness_m: Thickness of a coupling between flange and gripper, beyond the gripper's own base mount.
        table_height_m: Height of the table top in the base frame.
        servo_gain, servo_lookahead_s: How the arm follows its targets, where a client chooses that: a UR's ``gain`` and
            ``lookahead_time`` of ``servoj`` (``robots/servo.py`` has the law). By default the arm's own, 300 and 0.1 s
            for a UR; all other values are an extrapolation from recordings with these.
    """

    backend: Annotated[str, AfterValidator(_known_backend)] = "mujoco"
    arm: Annotated[str, AfterValidator(ARMS.known)] = "ur5e"
    gripper: Annotated[str, AfterValidator(GRIPPERS.known)] = "robotiq_2f85"
    control_rate_hz: Annotated[float, Field(ge=1.0, le=1000.0)] = 20.0
    physics_rate_hz: PositiveFloat = 400.0
    coupling_thickness_m: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    table_height_m: Annotated[float, Field(ge=-1.0, le=0.05)] = 0.0
    servo_gain: Annotated[float, Field(ge=100.0, le=2000.0)] | None = None
    servo_lookahead_s: Annotated[float, Field(ge=0.03, le=0.2)] | None = None

    def in_simulation(self, simulated: Self) -> Self:
        """Return this robot as a run simulates its own: by the same backend, at the same physics rate."""
        how = {"backend": simulated.backend, "physics_rate_hz": simulated.physics_rate_hz}
        return self.model_copy(update=how)

    @model_validator(mode="after")
    def _whole_periods(self) -> Self:
        ratio = self.physics_rate_hz / self.control_rate_hz
        if abs(ratio - round(ratio)) > 1e-9 or ratio < 1:
            raise ValueError(
                f"the control period {1e3 / self.control_rate_hz:g} ms is not a multiple of the physics step "
                f"{1e3 / self.physics_rate_hz:g} ms; choose physics_rate_hz as a multiple of control_rate_hz"
            )
        if not 250 <= self.physics_rate_hz <= 2000:
            raise ValueError(
                f"physics_rate_hz {self.physics_rate_hz:g} is outside [250, 2000]: the gripper's linkage needs "
                "steps of at most 4 ms"
            )
        return self


# Full action about the vertical, for tasks that turn the tool [rad/s].
TURN_RAD_S = 0.65


class ActionConfig(Section):
    """What an action in [-1, 1] means.

    Attributes:
        kind: ``tcp_delta`` moves the tool centre point, ``joint_delta`` the joints, both relative to the last
            commanded posture.
        speed_fraction: Full action, as a share of the guard's speed limit (tool speed for ``tcp_delta``; joint speed
            for ``joint_delta``, which also keeps the tool to 0.9 of its limit).
        dead_zone: Shorter actions ask for rest, and speed grows from there, so that dithering at rest moves nothing.
        exponent: Speed grows with this power of the action beyond its dead zone, so that small actions are finer.
    """

    kind: Literal["tcp_delta", "joint_delta"] = "tcp_delta"
    speed_fraction: Fraction = 0.9
    dead_zone: Annotated[float, Field(ge=0.0, le=0.8)] = 0.1
    exponent: Annotated[float, Field(ge=1.0, le=3.0)] = 2.0

    def length(self, share: float) -> float:
        """Return the length of an action that asks for a share of full speed."""
        length: float = self.dead_zone + (1.0 - self.dead_zone) * share ** (1.0 / self.exponent)
        return length if share > 0.0 else 0.0


# Marks a limit of the guard that a share of full speed scales; the others hold at any speed.
SCALES = "scales"


class GuardConfig(Section):
    """The limits between every policy and every arm; see ``robots/guard.py`` for how they are kept.

    Attributes:
        max_tcp_speed_m_s: Tool speed limit; ISO 10218-1 manual reduced speed is 0.25.
        joint_speed_fraction: Share of the arm's own joint speed limits.
        max_joint_acceleration_rad_s2: Bound on the change of commanded joint velocity.
        position_margin_rad: Distance kept from the arm's joint limits.
        workspace: Where the tool centre point may be.
        clearance_m: Distance kept between links, gripper and table.
        max_lead_rad: How far any joint's command may run ahead of its measurement.
        max_state_age_s: Older states are refused.
        max_contact_force_n: Force at the tool, as the robot itself estimates it, that stops the arm; where the robot
            estimates none, as in training's simulation, nothing does.
    """

    max_tcp_speed_m_s: Annotated[float, Field(gt=0.0, le=2.0), SCALES] = 0.25
    joint_speed_fraction: Annotated[Fraction, SCALES] = 0.5
    max_joint_acceleration_rad_s2: Annotated[float, Field(gt=0.0, le=40.0), SCALES] = 8.0
    position_margin_rad: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    workspace: Box = Box(low=(-0.6, 0.15, 0.02), high=(0.6, 0.95, 0.8))
    clearance_m: Annotated[float, Field(ge=0.0, le=0.2)] = 0.005
    max_lead_rad: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    max_state_age_s: Annotated[float, Field(gt=0.0, le=2.0)] = 0.15
    max_contact_force_n: Annotated[float, Field(gt=0.0, le=500.0)] = 100.0

    def raised(self, by_m: float) -> Self:
        """Return these limits with the floor of the workspace raised [m]."""
        x, y, floor = self.workspace.low
        low = (x, y, round(floor + by_m, 6))
        return self.model_copy(update={"workspace": self.workspace.model_copy(update={"low": low})})

    def scaled(self, share: float) -> Self:
        """Return these limits with speed and acceleration scaled by one factor."""
        scaling = [name for name, field in type(self).model_fields.items() if SCALES in field.metadata]
        return self.model_copy(update={name: getattr(self, name) * share for name in scaling})
