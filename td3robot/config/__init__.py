"""The configuration: one YAML file is one whole run, typed, strict and frozen.

Unknown keys are refused with the nearest right one. Impossible combinations are refused here where the file
alone shows them, and when the environment is built where the robot's model has to be asked.
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from td3robot.errors import ConfigError, choose

Vector3 = tuple[float, float, float]
Widths = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError(f"{value} is no range: the first must not be above the second")
    return value


Range = Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(_ordered)]
LoadRange = Annotated[tuple[NonNegative, NonNegative], AfterValidator(_ordered)]
StepRange = Annotated[tuple[NonNegativeInt, NonNegativeInt], AfterValidator(_ordered)]


class Section(BaseModel):
    """Base of every part of the configuration: no unknown keys, no change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Box(Section):
    """An axis-aligned box in the arm's base frame [m]."""

    low: Vector3
    high: Vector3

    @model_validator(mode="after")
    def _has_volume(self) -> Self:
        for axis, low, high in zip("xyz", self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(f"the box is empty along {axis}: low {low} m is not below high {high} m")
        return self

    def contains(self, other: "Box") -> bool:
        """Whether another box lies wholly inside this one."""
        return all(a <= b for a, b in zip(self.low, other.low, strict=True)) and all(
            a >= b for a, b in zip(self.high, other.high, strict=True)
        )


class RobotConfig(Section):
    """The arm, its gripper, and what moves them.

    Attributes:
        backend: ``mujoco`` (dynamics and contact), ``kinematic`` (Robotics Toolbox, velocities integrated), or ``ur``
            (the arm of a cell's file, see ``cell.py``).
        physics_rate_hz: Steps of the physics a second; a multiple of the control rate. For simulations.
        coupling_thickness_m: What sits between flange and gripper beyond the gripper's own base mount.
        table_height_m: Height of the table top in the base frame.
    """

    backend: Literal["mujoco", "kinematic", "ur"] = "mujoco"
    arm: Literal["ur5e"] = "ur5e"
    gripper: Literal["robotiq_2f85"] = "robotiq_2f85"
    control_rate_hz: PositiveFloat = 20.0
    physics_rate_hz: PositiveFloat = 400.0
    coupling_thickness_m: Annotated[float, Field(ge=0.0, le=0.1)] = 0.0
    table_height_m: Annotated[float, Field(ge=-1.0, le=0.0)] = 0.0

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


class ActionConfig(Section):
    """What an action in [-1, 1] means.

    Attributes:
        kind: ``tcp_delta`` moves the tool centre point, ``joint_delta`` the joints, both relative to the last
            commanded posture.
        speed_fraction: Full action, as a share of the guard's speed limit (tool speed for ``tcp_delta``, joint
            speed for ``joint_delta``, which keeps the tool to 0.9 of its limit besides).
        damping_m: Damping of the damped least squares inverse of the Jacobian, for ``tcp_delta``.
        orientation_gain_hz: How fast ``tcp_delta`` turns the tool back to pointing down where it has tilted.
        turn_rad_s: Full action about the vertical, for tasks that keep the tool pointing down.
        exponent: Speed grows with this power of the action, so that small actions are finer: what a policy dithers by
            when it should rest moves the arm by little.
        response: How much of the wished change of velocity happens in one period; 1 is all of it. Below, a policy that
            dithers moves the arm smoothly instead of being held back by the guard's acceleration limit.
    """

    kind: Literal["tcp_delta", "joint_delta"] = "tcp_delta"
    speed_fraction: Fraction = 0.9
    damping_m: Annotated[float, Field(gt=0.0, le=1.0)] = 0.05
    orientation_gain_hz: NonNegative = 4.0
    turn_rad_s: Annotated[float, Field(gt=0.0, le=3.0)] = 0.65
    response: Fraction = 0.4
    exponent: Annotated[float, Field(ge=1.0, le=3.0)] = 2.0


class GuardConfig(Section):
    """The limits between every policy and every arm; see ``robots/guard.py`` for how they are kept.

    Attributes:
        max_tcp_speed_m_s: ISO 10218-1 manual reduced speed is 0.25.
        joint_speed_fraction: Share of the arm's own joint speed limits.
        max_joint_acceleration_rad_s2: Bound on the change of commanded joint velocity.
        position_margin_rad: Distance kept from the arm's joint limits.
        workspace: Where the tool centre point may be.
        clearance_m: Distance kept between links, gripper and table.
        max_lead_rad: How far the commanded posture may run ahead of the measured one, any joint.
        max_state_age_s: Older states are refused.
    """

    max_tcp_speed_m_s: Annotated[float, Field(gt=0.0, le=2.0)] = 0.25
    joint_speed_fraction: Fraction = 0.5
    max_joint_acceleration_rad_s2: Annotated[float, Field(gt=0.0, le=40.0)] = 8.0
    position_margin_rad: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    workspace: Box = Box(low=(-0.6, 0.15, 0.02), high=(0.6, 0.95, 0.8))
    clearance_m: Annotated[float, Field(ge=0.0, le=0.2)] = 0.005
    max_lead_rad: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    max_state_age_s: PositiveFloat = 0.15


# The simulated table, (x, y) [m].
TABLE_LOW, TABLE_HIGH = (-0.5, -0.15), (0.5, 0.95)
# Robotiq 2F-85 data sheet: 85 mm stroke, 5 kg payload by friction. The jaw needs some play to go around an object.
GRIPPER_STROKE_M = 0.085
GRIP_MARGIN_M = 0.005
GRIPPER_PAYLOAD_KG = 5.0
# Drivers that stop on something thinner cannot be told from drivers that close on nothing.
MIN_GRIP_WIDTH_M = 0.015
# The guard keeps the fingers' ends, 18 mm beyond the tool centre point, 5 mm off the table.
GRASP_HEIGHT_M = 0.026
MIN_GRASP_HEIGHT_M = 0.02
# Objects are gripped at half their height, and the palm is a good 60 mm above the tool centre point.
MAX_GRASP_HEIGHT_M = 0.12
# The fingers reach this far beyond the tool centre point, with some play.
FINGERTIPS_M = 0.02


class ReachRewards(Section):
    """Weights of the reach task's reward terms; ``tasks/reach.py`` has the formulas."""

    progress: NonNegative = 1.0
    precision: NonNegative = 1.0
    settled: NonNegative = 1.0
    smoothness: NonNegative = 0.05
    guard: NonNegative = 0.05


class ReachConfig(Section):
    """Bring the tool centre point to a goal and rest there.

    Attributes:
        goals: Where goals (and starts) are drawn from, uniformly.
        gripper: Range of the closed fraction that the gripper holds, drawn for each episode: a policy that has seen
            its fingers at one angle only depends on that angle to the milliradian.
        tolerance_m: Within this distance of the goal counts as there.
        settle_speed_m_s: Below this tool speed counts as at rest.
        hold_steps: How many steps at the end of an episode must be there and at rest.
        near_m: Scale on which the observation resolves the last stretch to the goal.
    """

    name: Literal["reach"] = "reach"
    goals: Box = Box(low=(-0.3, 0.25, 0.05), high=(0.3, 0.75, 0.45))
    gripper: Annotated[tuple[UnitInterval, UnitInterval], AfterValidator(_ordered)] = (0.0, 1.0)
    tolerance_m: PositiveFloat = 0.01
    settle_speed_m_s: PositiveFloat = 0.02
    hold_steps: PositiveInt = 5
    near_m: PositiveFloat = 0.03
    rewards: ReachRewards = ReachRewards()
    region: ClassVar[str] = "task.goals"

    def space(self, table_height_m: float) -> Box:
        """Give where the tool has to be able to go, in the base frame."""
        return self.goals


class ObjectConfig(Section):
    """What is to be grasped.

    Attributes:
        shape: ``box``, or ``cylinder`` standing upright.
        size_m: Full extents along the object's own axes; a cylinder's first two are its diameter.
        friction: Sliding friction between the gripper's pads and the object.
    """

    shape: Literal["box", "cylinder"] = "box"
    size_m: Vector3 = (0.04, 0.04, 0.04)
    mass_kg: PositiveFloat = 0.1
    friction: Annotated[float, Field(gt=0.0, le=2.0)] = 0.7

    @model_validator(mode="after")
    def _fits(self) -> Self:
        x, y, z = self.size_m
        if min(self.size_m) <= 0:
            raise ValueError(f"size_m {self.size_m} has an extent that is not positive")
        if self.shape == "cylinder" and x != y:
            raise ValueError(f"a cylinder's first two extents are its diameter, but {x} m and {y} m differ")
        if self.grip_width_m > GRIPPER_STROKE_M - GRIP_MARGIN_M:
            raise ValueError(
                f"the object is {1e3 * self.grip_width_m:g} mm wide where it is gripped, and the jaw takes at most "
                f"{1e3 * (GRIPPER_STROKE_M - GRIP_MARGIN_M):g} mm; choose a smaller object"
            )
        if self.grip_width_m < MIN_GRIP_WIDTH_M:
            raise ValueError(
                f"the object is {1e3 * self.grip_width_m:g} mm wide where it is gripped, and below "
                f"{1e3 * MIN_GRIP_WIDTH_M:g} mm the gripper's drivers cannot tell it from nothing"
            )
        if z < MIN_GRASP_HEIGHT_M:
            raise ValueError(
                f"the object is {1e3 * z:g} mm high, and the fingers grasp nothing lower than "
                f"{1e3 * MIN_GRASP_HEIGHT_M:g} mm"
            )
        if z > MAX_GRASP_HEIGHT_M:
            raise ValueError(
                f"the object is {1e3 * z:g} mm high, and the fingers reach down to the middle of at most "
                f"{1e3 * MAX_GRASP_HEIGHT_M:g} mm"
            )
        if self.mass_kg > GRIPPER_PAYLOAD_KG:
            raise ValueError(
                f"the object's {self.mass_kg:g} kg are above the gripper's payload of {GRIPPER_PAYLOAD_KG:g} kg"
            )
        return self

    @property
    def grip_width_m(self) -> float:
        """Width between the pads: the shorter horizontal extent."""
        return min(self.size_m[:2])

    @property
    def symmetry(self) -> int:
        """How many turns about the vertical look alike to the gripper: 4 for a square, 2 for a box, 0 for all."""
        if self.shape == "cylinder":
            return 0
        return 4 if self.size_m[0] == self.size_m[1] else 2


class GraspRewards(Section):
    """Weights of the grasp task's reward terms; ``tasks/grasp.py`` has the formulas."""

    approach: NonNegative = 4.0
    alignment: NonNegative = 5.0
    grasp: NonNegative = 1.0
    push: NonNegative = 4.0
    lift: NonNegative = 2.0
    rise: NonNegative = 20.0
    held: NonNegative = 4.0
    smoothness: NonNegative = 0.3
    guard: NonNegative = 0.1


class GraspConfig(Section):
    """Close on an object on the table, lift it, and hold it at rest.

    Attributes:
        patch_low, patch_high: Where on the table (x, y) [m] objects lie.
        start_height_m: Range of the tool's height above the table at the start.
        lift_height_m: How far the object must be lifted.
        rest_speed_m_s: Below this speed, and not moving in the hand, the object counts as held at rest.
        hold_steps: How many steps at the end of an episode it must be held.
        practice_hold_steps: In training, an episode is over once it was held for so many steps in a row: more of the
            same teaches little, and the next object more.
        full_turn_rad: Turn of the tool in one period that earns the whole of ``alignment``. Not less than what two
            joints at the guard's limit turn it by (2 * 1.57 rad/s * 50 ms): clipped on one side only, turning away fast
            and back slowly would pay.
        near_m: Scale on which the observation resolves the last stretch to the object.
        practice_share: Share of the training's episodes that begin with the tool around the object, so that closing and
            lifting are met before the way there is learned; evaluations have none.
    """

    name: Literal["grasp"] = "grasp"
    object: ObjectConfig = ObjectConfig()
    patch_low: tuple[float, float] = (-0.2, 0.35)
    patch_high: tuple[float, float] = (0.2, 0.65)
    start_height_m: Range = (0.15, 0.3)
    lift_height_m: PositiveFloat = 0.1
    rest_speed_m_s: PositiveFloat = 0.02
    hold_steps: PositiveInt = 10
    practice_hold_steps: PositiveInt = 30
    full_turn_rad: PositiveFloat = 0.16
    near_m: PositiveFloat = 0.03
    practice_share: UnitInterval = 0.5
    rewards: GraspRewards = GraspRewards()
    region: ClassVar[str] = "the task's patch, with start and lift above it,"

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        for axis, low, high in zip("xy", self.patch_low, self.patch_high, strict=True):
            if not low < high:
                raise ValueError(f"the patch is empty along {axis}: patch_low {low} m is not below patch_high {high} m")
        for axis, low, high, *edges in zip("xy", self.patch_low, self.patch_high, TABLE_LOW, TABLE_HIGH, strict=True):
            if low < edges[0] or high > edges[1]:
                raise ValueError(
                    f"the patch goes from {axis} {low:g} to {high:g} m, and the table only from {edges[0]:g} to "
                    f"{edges[1]:g} m: objects would fall off its edge"
                )
        height = self.object.size_m[2]
        if self.start_height_m[0] < height + FINGERTIPS_M:
            raise ValueError(
                f"the tool starts from {self.start_height_m[0]:g} m above the table, with its fingers inside an object "
                f"of {height:g} m; raise start_height_m to {height + FINGERTIPS_M:g} m or more"
            )
        return self

    def space(self, table_height_m: float) -> Box:
        """Give where the tool has to be able to go, in the base frame: from grasping to above the lift."""
        low = table_height_m + GRASP_HEIGHT_M
        lifted = max(GRASP_HEIGHT_M, self.object.size_m[2] / 2) + self.lift_height_m
        high = table_height_m + max(self.start_height_m[1], lifted)
        return Box(low=(*self.patch_low, round(low, 6)), high=(*self.patch_high, round(high, 6)))


TASK_CONFIGS: Mapping[str, type[Section]] = {"reach": ReachConfig, "grasp": GraspConfig}


def _task_name(value: Any) -> Any:
    return value.get("name", "reach") if isinstance(value, Mapping) else getattr(value, "name", None)


TaskConfig = Annotated[
    Annotated[ReachConfig, Tag("reach")] | Annotated[GraspConfig, Tag("grasp")], Discriminator(_task_name)
]


class DisturbanceConfig(Section):
    """What reality adds to a simulation, drawn anew for each episode; ``off``, ``mild`` and ``real`` are levels of it.

    Attributes:
        action_delay_steps: Control periods from sending a command to its effect.
        observation_delay_steps: Control periods from a measurement to its being read.
        encoder_noise_rad, encoder_bias_rad: Joint angles: standard deviation per reading, bound per episode.
        driver_noise_rad, driver_bias_rad: The same of the gripper's driver joints.
        object_offset_m, object_turn_rad: Bounds of the tracker's error per episode, along each axis and about the
            vertical.
        object_noise_m, object_turn_noise_rad: Standard deviation per reading.
        servo_stiffness, servo_lag: Factors on the arm's servos.
        object_mass_kg, object_friction: Ranges in place of the object's own; mass is drawn log-uniformly.
        object_scale: Factor on the object's size.
        payload_kg: Mass at the gripper that the controller was not told of.
        table_offset_m: Bound of the table's height error.
    """

    action_delay_steps: StepRange = (0, 0)
    observation_delay_steps: StepRange = (0, 0)
    encoder_noise_rad: NonNegative = 0.0
    encoder_bias_rad: NonNegative = 0.0
    driver_noise_rad: NonNegative = 0.0
    driver_bias_rad: NonNegative = 0.0
    object_offset_m: NonNegative = 0.0
    object_turn_rad: NonNegative = 0.0
    object_noise_m: NonNegative = 0.0
    object_turn_noise_rad: NonNegative = 0.0
    servo_stiffness: Range = (1.0, 1.0)
    servo_lag: Range = (1.0, 1.0)
    object_mass_kg: Range | None = None
    object_friction: Range | None = None
    object_scale: Range = (1.0, 1.0)
    payload_kg: LoadRange = (0.0, 0.0)
    table_offset_m: Annotated[float, Field(ge=0.0, le=0.02)] = 0.0


# Where the figures come from: docs/tasks.md. `mild` is half of `real`.
DISTURBANCES: Mapping[str, DisturbanceConfig] = {
    "off": DisturbanceConfig(),
    "mild": DisturbanceConfig(
        action_delay_steps=(0, 1),
        observation_delay_steps=(0, 1),
        encoder_noise_rad=0.0001,
        encoder_bias_rad=0.0005,
        driver_noise_rad=0.001,
        driver_bias_rad=0.005,
        object_offset_m=0.002,
        object_turn_rad=0.035,
        object_noise_m=0.0003,
        object_turn_noise_rad=0.005,
        servo_stiffness=(0.85, 1.15),
        servo_lag=(0.85, 1.15),
        object_mass_kg=(0.05, 0.2),
        object_friction=(0.6, 0.9),
        object_scale=(0.95, 1.05),
        payload_kg=(0.0, 0.15),
        table_offset_m=0.002,
    ),
    "real": DisturbanceConfig(
        action_delay_steps=(0, 3),
        observation_delay_steps=(0, 2),
        encoder_noise_rad=0.0002,
        encoder_bias_rad=0.001,
        driver_noise_rad=0.002,
        driver_bias_rad=0.01,
        object_offset_m=0.005,
        object_turn_rad=0.087,
        object_noise_m=0.0005,
        object_turn_noise_rad=0.01,
        servo_stiffness=(0.7, 1.3),
        servo_lag=(0.7, 1.3),
        object_mass_kg=(0.02, 0.3),
        object_friction=(0.5, 1.2),
        object_scale=(0.9, 1.1),
        payload_kg=(0.0, 0.3),
        table_offset_m=0.005,
    ),
}


def _disturbance_level(value: Any) -> Any:
    """Look a level up by name; YAML reads a bare ``off`` as false."""
    if value is False:
        return DISTURBANCES["off"]
    if isinstance(value, str):
        if value not in DISTURBANCES:
            raise ValueError(choose("disturbance", value, DISTURBANCES))
        return DISTURBANCES[value]
    return value


class RobotEnvironmentConfig(Section):
    """A task on a robot, behind the guard."""

    kind: Literal["robot"] = "robot"
    robot: RobotConfig = RobotConfig()
    task: TaskConfig = ReachConfig()
    action: ActionConfig = ActionConfig()
    guard: GuardConfig = GuardConfig()
    disturbance: Annotated[DisturbanceConfig, BeforeValidator(_disturbance_level)] = DISTURBANCES["off"]
    episode_s: PositiveFloat = 5.0

    @property
    def episode_steps(self) -> int:
        """Control periods in an episode."""
        return round(self.episode_s * self.robot.control_rate_hz)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        space = self.task.space(self.robot.table_height_m)
        if not self.guard.workspace.contains(space):
            raise ValueError(
                f"{self.task.region} {space.low}..{space.high} m reaches outside guard.workspace "
                f"{self.guard.workspace.low}..{self.guard.workspace.high} m, so some goals could never be reached"
            )
        if self.episode_steps < self.task.hold_steps:
            raise ValueError(
                f"an episode of {self.episode_steps} steps is shorter than task.hold_steps {self.task.hold_steps}"
            )
        return self

    @model_validator(mode="after")
    def _can_be_disturbed(self) -> Self:
        disturbance, oldest = self.disturbance, self.guard.max_state_age_s
        age = disturbance.observation_delay_steps[1] / self.robot.control_rate_hz
        if age > oldest - 1e-9:
            raise ValueError(
                f"disturbance.observation_delay_steps {disturbance.observation_delay_steps} makes states {age:g} s "
                f"old, and the guard refuses them from guard.max_state_age_s {oldest:g} s on"
            )
        if isinstance(self.task, GraspConfig):
            width, most = self.task.object.grip_width_m * disturbance.object_scale[1], GRIPPER_STROKE_M - GRIP_MARGIN_M
            if width > most:
                raise ValueError(
                    f"disturbance.object_scale {disturbance.object_scale} makes the object {1e3 * width:g} mm wide "
                    f"where it is gripped, and the jaw takes at most {1e3 * most:g} mm; choose a smaller object"
                )
            if disturbance.object_mass_kg is not None and disturbance.object_mass_kg[1] > GRIPPER_PAYLOAD_KG:
                raise ValueError(
                    f"disturbance.object_mass_kg {disturbance.object_mass_kg} is above the gripper's payload of "
                    f"{GRIPPER_PAYLOAD_KG:g} kg"
                )
        return self


class GymnasiumEnvironmentConfig(Section):
    """Any registered Gymnasium environment with flat observations and bounded continuous actions."""

    kind: Literal["gymnasium"] = "gymnasium"
    id: str
    kwargs: dict[str, Any] = {}


ENVIRONMENTS: Mapping[str, type[Section]] = {
    "robot": RobotEnvironmentConfig,
    "gymnasium": GymnasiumEnvironmentConfig,
}


class AgentConfig(Section):
    """TD3's hyperparameters; the defaults are those of the paper (Fujimoto et al. 2018, Appendix C).

    Attributes:
        updates_per_step: Learner updates for each environment step.
        n_step: Rewards summed before bootstrapping.
        average_tau: Share of the actor that its running average takes over at each of the actor's updates. The average
            is what is evaluated, saved for play and deployed; with 1 that is the actor itself.
        random_share: Share of exploration's actions that are uniformly random, at the beginning.
        random_share_steps: Environment steps over which that share falls to 0, linearly; 0 keeps it.
        random_action_steps: How many steps in a row such an action is kept, on average.
        greedy_share: Share of the environments that act without exploration. A policy that is played without noise can
            repeat itself for ever where noise would free it; so that this is met, and learned away, in training.
        device: ``auto`` takes CUDA where there is one.
    """

    actor_hidden: Widths = (400, 300)
    critic_hidden: Widths = (400, 300)
    layer_norm: bool = False
    normalize_observations: bool = False
    actor_learning_rate: PositiveFloat = 1e-3
    critic_learning_rate: PositiveFloat = 1e-3
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    tau: Fraction = 0.005
    average_tau: Fraction = 1.0
    policy_noise: NonNegative = 0.2
    noise_clip: NonNegative = 0.5
    policy_freq: PositiveInt = 2
    exploration_noise: NonNegative = 0.1
    random_share: UnitInterval = 0.0
    random_share_steps: NonNegativeInt = 0
    random_action_steps: PositiveInt = 1
    greedy_share: UnitInterval = 0.0
    batch_size: PositiveInt = 100
    updates_per_step: PositiveFloat = 1.0
    n_step: PositiveInt = 1
    replay_capacity: PositiveInt = 1_000_000
    device: Literal["auto", "cpu", "cuda"] = "auto"


class TrainingConfig(Section):
    """How long, how wide, and how often to look.

    Attributes:
        steps: Environment steps in all, over every parallel environment.
        random_steps: Steps with uniformly random actions before the policy acts and learning starts.
        environments: Environments stepped side by side into one replay.
        undisturbed_share: Share of the environments that stay undisturbed where the others are disturbed. A cell that
            is just as its model is an edge of what disturbances draw, and rarely met else.
        overlap: Step the environments in a second process while the learner updates. The order of all random
            draws stays fixed, so runs still repeat bit for bit. That process makes them anew from their configuration:
            an ``id`` of Gymnasium that a program registered by hand is unknown there, ``module:Name`` is known.
        torch_threads: Threads of the learner; 0 leaves PyTorch's own choice.
        evaluate_every, checkpoint_every, log_every: In environment steps.
    """

    steps: PositiveInt = 1_000_000
    random_steps: PositiveInt = 10_000
    environments: PositiveInt = 1
    undisturbed_share: UnitInterval = 0.0
    overlap: bool = False
    torch_threads: Annotated[int, Field(ge=0, le=256)] = 0
    evaluate_every: PositiveInt = 5_000
    evaluation_episodes: PositiveInt = 10
    checkpoint_every: PositiveInt = 50_000
    log_every: PositiveInt = 1_000


class RunConfig(Section):
    """One whole run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    environment: Annotated[RobotEnvironmentConfig | GymnasiumEnvironmentConfig, Field(discriminator="kind")]
    agent: AgentConfig = AgentConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.agent.replay_capacity < self.agent.batch_size:
            raise ValueError(
                f"agent.replay_capacity {self.agent.replay_capacity} is smaller than "
                f"agent.batch_size {self.agent.batch_size}"
            )
        return self


def load_config(path: Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a YAML file, apply ``section.key=value`` overrides, and check the whole.

    Raises:
        ConfigError: The file cannot be read, or says something that cannot be run.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration {path}; see configs/ for those that come with td3robot") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path} cannot be read: {error}") from None
    return parse_config(text, str(path), overrides)


def parse_config(text: str, source: str, overrides: Iterable[str] = ()) -> RunConfig:
    """Check the YAML text of a configuration; ``source`` names it in messages.

    Raises:
        ConfigError: It is no YAML mapping, or says something that cannot be run.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} must hold a mapping of sections, not {type(values).__name__}")
    given = list(overrides)
    for override in given:
        _apply(values, override)
    if given:
        source = f"{source} with --set {' '.join(given)}"
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, RunConfig)}") from None


def to_yaml(config: RunConfig) -> str:
    """Write the resolved configuration, every default spelled out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _apply(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {override!r} is not of the form section.key=value")
    *sections, key = path.strip().split(".")
    node = values
    for section in sections:
        child = node.setdefault(section, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {path}: {section!r} is a value, not a section")
        node = child
    try:
        node[key] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {path}: {text!r} is not a YAML value") from None


def explain(error: ValidationError, whole: type[Section]) -> str:
    """Say the first thing that is wrong with a configuration of the type ``whole``, in one sentence."""
    errors = error.errors(include_url=False)
    # A misspelt key that is required is both missing and unknown; the second is the one to tell.
    first = next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])
    location, section = _locate([str(part) for part in first["loc"]], whole)
    name = ".".join(location)
    kind, value, context = first["type"], first.get("input"), first.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted(section.model_fields)
        near = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        return f"unknown key {name!r}" + (
            f"; did you mean {near[0]!r}?" if near else f" (known here: {', '.join(known)})"
        )
    if kind == "missing":
        return f"{name} is missing"
    if kind == "value_error":
        return f"{name}: {context['error']}" if name else str(context["error"])
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        key, choices = ("name", TASK_CONFIGS) if location[-1:] == ["task"] else ("kind", ENVIRONMENTS)
        if kind == "union_tag_not_found":
            return f"{name}.{key} is missing (choices: {', '.join(sorted(choices))})"
        return f"{name}.{key}: {choose(key, str(context['tag']), choices)}"
    if kind == "literal_error":
        literals = [part.strip(" '") for part in context["expected"].replace(" or ", ",").split(",")]
        return f"{name}: {choose(location[-1], str(value), literals)}"
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return f"{name} is {shown}, but {first['msg'][0].lower()}{first['msg'][1:].replace('nput should', 't should')}"


# Where a union's tag stands in the location of an error, after which keys.
UNIONS: Mapping[tuple[str, ...], Mapping[str, type[Section]]] = {
    ("environment",): ENVIRONMENTS,
    ("environment", "task"): TASK_CONFIGS,
}


def _locate(location: list[str], section: type[Section]) -> tuple[list[str], type[Section]]:
    """Drop a union's tag from an error's location, and find the section that holds its last key."""
    path: list[str] = []
    for index, part in enumerate(location):
        tags = UNIONS.get(tuple(path), {})
        if index > 0 and path[-1] == location[index - 1] and part in tags:
            section = tags[part]
            continue
        path.append(part)
        field = section.model_fields.get(part)
        for kind in (field.annotation, *get_args(field.annotation)) if field is not None else ():
            if isinstance(kind, type) and issubclass(kind, Section):
                section = kind
                break
    return path, section
