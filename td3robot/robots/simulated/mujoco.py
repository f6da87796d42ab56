"""The simulated arm: dynamics, contact and servo lag in MuJoCo."""

from collections.abc import Mapping
from copy import copy
from weakref import WeakValueDictionary

import mujoco
import numpy as np

from td3robot.errors import RobotError
from td3robot.geometry import quaternion
from td3robot.jit import formula, kernel, plain
from td3robot.processes import return_memory
from td3robot.robots.arms.model import MOTOR_DAMPING_S
from td3robot.robots.interface import RobotSpec
from td3robot.robots.objects import Objects, Sighting
from td3robot.robots.servo import decay, follow, rub
from td3robot.robots.simulated.robot import Fingers, SimulatedRobot, Variation
from td3robot.robots.simulated.scene import (
    GRIPPER_PREFIX,
    TABLE_GEOM,
    TCP_SITE,
    inertia_of,
    keep_hulls,
    require_chain,
    reshape,
    set_gripper,
    simulation_spec,
)
from td3robot.row_math import dot
from td3robot.state import Array, JointCommand, ObjectModel, Pose, RobotState

UNSTABLE = mujoco.mjtWarning.mjWARN_BADQACC.value


class SimulatedCell:
    """A compiled cell of what touches, with hulls in place of meshes; with all meshes, it would hold 60 MB."""

    def __init__(self, spec: RobotSpec, physics_rate_hz: float, objects: tuple[ObjectModel, ...]) -> None:
        self.arm, self.gripper = spec.arm, spec.gripper
        cell = simulation_spec(spec, physics_rate_hz, objects)
        keep_hulls(cell)
        self.model = cell.compile()
        require_chain(self.model, spec)


# A model takes 2 MB, and 0.2 s to make. Robots in undisturbed cells share it, as :mod:`td3robot.robots.kinematics`
# has it for the guard's.
_cells: "WeakValueDictionary[tuple[object, ...], SimulatedCell]" = WeakValueDictionary()


def cell_of(spec: RobotSpec, physics_rate_hz: float, objects: tuple[ObjectModel, ...] = ()) -> SimulatedCell:
    """Return the cell of a robot, compiled once for all that use it; it must not be changed.

    Raises:
        ConfigError: Its kinematics disagree with the arm's own numbers.
    """
    key = (id(spec.arm), id(spec.gripper), spec.tcp_offset_m, spec.table_height_m, physics_rate_hz, objects)
    cell = _cells.get(key)
    if cell is None:
        cell = _cells[key] = SimulatedCell(spec, physics_rate_hz, objects)
    return cell


def clear_asset_cache() -> None:
    """Return what compiling models took to the system, and what MuJoCo keeps of their files, 24 MB for a 2F-85."""
    mujoco.mj_clearCache(mujoco.mj_getCache())
    return_memory()


# After how many physics steps the motors' targets change their velocity. At 8 rad/s^2, a straight line over 25 ms is
# 0.25 mrad off.
STEPS_TOGETHER = 10
# Rows of a servo's state: how far joints would be behind their targets without friction, their speeds, how far friction
# holds them back from there, the targets, and the last commands.
BEHIND, SPEED, DRAG, TARGET, COMMAND = range(5)


@formula
def motor_target(q: float, v: float, torque: float, stiffness: float) -> float:
    """Return one of :func:`motor_targets`, with the torque that the motion needs [N m]."""
    return q + MOTOR_DAMPING_S * v + torque / stiffness


@kernel
def motor_targets(q: Array, v: Array, a: Array, inertia: Array, stiffness: Array) -> Array:
    """Return the motors' targets (n,) [rad] that keep joints to a motion through MuJoCo's coming step.

    MuJoCo takes damping at the end of a step, and moves a joint by the speed that it has there.

    Args:
        q: (n,) joint angles at the step's beginning [rad].
        v: (n,) joint speeds by which they change in it [rad/s].
        a: (n,) joint accelerations [rad/s^2].
        inertia: (.., ..) the joints' inertia matrix, in its first n rows and columns [kg m2].
        stiffness: (n,) of the motors [N m/rad].
    """
    found = np.empty(len(q))
    for joint in range(len(q)):
        found[joint] = motor_target(q[joint], v[joint], dot(inertia[joint, : len(q)], a), stiffness[joint])
    return found


@kernel
def follow_period(
    gain: float, lookahead_s: float, state: Array, command: Array, late_s: float, step_s: float, steps: int,
    inertia: Array, stiffness: Array, friction: Array, first: Array, plan: Array,
) -> None:  # fmt: skip
    """Let a servo follow its target through a control period, and find what the motors have to do for it.

    The target moves to the last command until the new one takes effect, then in a straight line towards that.

    Args:
        gain: The law's.
        lookahead_s: The law's.
        state: (5, n) the servo's state; changed.
        command: (n,) the new command [rad].
        late_s: When it takes effect; by as much, the target stays behind it.
        step_s: MuJoCo's step.
        steps: How many the period has.
        inertia: See :func:`motor_targets`.
        stiffness: See :func:`motor_targets`.
        friction: (n,) each joint's (``robots/servo.py``) [rad].
        first: (n,) gets the motors' targets at first [rad].
        plan: (.., n) gets the velocities of these, each for ``STEPS_TOGETHER`` steps [rad/s]; the last row is scratch.
    """
    joints, period_s = len(command), steps * step_s
    behind, speed, drag, target, last = state[BEHIND], state[SPEED], state[DRAG], state[TARGET], state[COMMAND]
    towards, before, moved, a = np.empty(joints), np.empty(joints), np.empty(joints), np.empty(joints)
    for joint in range(joints):
        towards[joint] = (command[joint] - last[joint]) / period_s
        before[joint] = target[joint] - behind[joint]
    now = of_s = cosine = sine = 0.0
    for node in range((steps + STEPS_TOGETHER - 1) // STEPS_TOGETHER + 1):
        begin, until = now, min(node * STEPS_TOGETHER, steps) * step_s
        while now < until - 1e-9:
            is_late = now < late_s - 1e-9
            seconds = (min(until, late_s) if is_late else until) - now
            if abs(seconds - of_s) > 1e-12:
                of_s, (cosine, sine) = seconds, decay(gain, lookahead_s, seconds)
            for joint in range(joints):
                velocity = (last[joint] - target[joint]) / (late_s - now) if is_late else towards[joint]
                behind[joint], speed[joint] = follow(
                    gain, lookahead_s, cosine, sine, behind[joint], speed[joint], velocity
                )
                target[joint] += velocity * seconds
            now += seconds
        for joint in range(joints):
            servo = target[joint] - behind[joint]
            moved[joint], before[joint] = servo - before[joint], servo
        moves = rub(moved, speed, friction, drag)
        for joint in range(joints):
            a[joint] = gain * (behind[joint] - lookahead_s * speed[joint]) if moves[joint] else 0.0
        for joint in range(joints):
            v = speed[joint] + 0.5 * step_s * a[joint] if moves[joint] else 0.0
            plan[node, joint] = motor_target(
                before[joint] - drag[joint], v, dot(inertia[joint, :joints], a), stiffness[joint]
            )
            if node == 0:
                first[joint] = plan[node, joint]
            else:
                plan[node - 1, joint] = (plan[node, joint] - plan[node - 1, joint]) / (now - begin)
    for joint in range(joints):  # exactly, so that rounding does not accumulate
        target[joint] = command[joint] - late_s * towards[joint]
        last[joint] = command[joint]


class VariedModel:
    """A compiled model to which variations are applied, each from its nominal values."""

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec, objects: tuple[ObjectModel, ...]) -> None:
        joints = len(robot.arm.home)
        self._model, self._joints = model, joints
        self._objects = {item.name: item for item in objects}
        self._gain, self._bias = model.actuator_gainprm[:joints].copy(), model.actuator_biasprm[:joints].copy()
        self._hand = model.body(GRIPPER_PREFIX + robot.gripper.palm).id
        self._hand_mass = float(model.body_mass[self._hand])
        self._base = model.body(GRIPPER_PREFIX + robot.gripper.base).id
        self._base_place = model.body_pos[self._base].copy()
        self._table = model.geom(TABLE_GEOM).id
        self._table_height = float(model.geom_pos[self._table, 2])
        self._pads = [
            i
            for i in range(model.ngeom)
            if model.geom(i).name.startswith(GRIPPER_PREFIX) and robot.gripper.pads in model.geom(i).name
        ]
        self._inertia = {item.name: model.body(item.name).inertia.copy() for item in objects}
        self._lift, self._scale = 0.0, 1.0
        self._scratch = mujoco.MjData(model)

    def apply(self, variation: Variation) -> None:
        """Set every number that the variation touches."""
        model, n = self._model, self._joints
        stiffness = variation.servo_stiffness
        model.actuator_gainprm[:n] = self._gain * stiffness
        model.actuator_biasprm[:n] = self._bias * stiffness
        # The arm keeps compensating the weight that it knows of.
        model.body_mass[self._hand] = self._hand_mass + variation.payload_kg
        model.body_gravcomp[self._hand] = self._hand_mass / (self._hand_mass + variation.payload_kg)
        model.body_pos[self._base] = self._base_place + variation.tool_offset_m
        model.geom_pos[self._table, 2] = self._table_height + variation.table_offset_m
        self._lift = variation.table_offset_m
        self._scale = variation.object_scale
        for item in self._objects.values():
            self._apply_to_object(item, variation)
        mujoco.mj_setConst(model, self._scratch)

    def lifts(self, name: str) -> Array:
        """Return the upward shift (3,) of an object from the nominal cell, due to its table and its size [m]."""
        height = self._objects[name].size_m[2]
        return np.array([0.0, 0.0, self._lift + (self._scale - 1.0) * height / 2])

    def become(self, item: ObjectModel) -> None:
        """Make an object another of the same name; the next :meth:`apply` changes the model."""
        self._objects[item.name], self._inertia[item.name] = item, inertia_of(item)

    def _apply_to_object(self, item: ObjectModel, variation: Variation) -> None:
        model, scale = self._model, variation.object_scale
        body = model.body(item.name)
        mass = item.mass_kg if variation.object_mass_kg is None else variation.object_mass_kg
        body.mass[:] = mass
        body.inertia[:] = self._inertia[item.name] * (mass / item.mass_kg) * scale**2
        reshape(model, item, scale)
        friction = item.friction if variation.object_friction is None else variation.object_friction
        model.geom_friction[self._pads, 0] = friction


class MujocoRobot(SimulatedRobot):
    """An arm and its gripper in MuJoCo.

    ``move_to`` places the arm at once: a simulation need not wait. The state afterwards does not depend on what
    happened before, so an episode can be repeated exactly.

    Attributes:
        model: The cell's model once connected. It is shared and must not be changed; see :meth:`own_model`.
    """

    def __init__(self, spec: RobotSpec, physics_rate_hz: float, objects: tuple[ObjectModel, ...] = ()) -> None:
        super().__init__(spec)
        self.object_models = objects
        self.substeps = round(physics_rate_hz / spec.control_rate_hz)
        self.physics_rate_hz = physics_rate_hz
        self.motor = Fingers(spec.gripper.closing_rate)
        self.model: mujoco.MjModel | None = None
        self._law = plain(spec.law)

    def connect(self) -> None:
        """Take the cell's model."""
        if self.model is not None:
            return
        self._cell = cell_of(self.spec, self.physics_rate_hz, self.object_models)  # kept alive by those that use it
        self.model = self._cell.model
        self.data = mujoco.MjData(self.model)
        self._joints = len(self.spec.arm.home)
        self.drivers = np.array(
            [self.model.joint(GRIPPER_PREFIX + name).qposadr[0] for name in self.spec.gripper.driver_names]
        )
        self._varied: VariedModel | None = None
        bodies = {item.name: self.data.body(item.name) for item in self.object_models}
        self._bodies = {name: (body.xpos, body.xmat.reshape(3, 3)) for name, body in bodies.items()}
        self._tool = self.data.site(TCP_SITE).xpos
        self.fingers = self.model.actuator(GRIPPER_PREFIX + self.spec.gripper.actuator).id
        # Views of the simulation's data: looking them up costs more than using them.
        data, n = self.data, self._joints
        self._q, self._dq, self._driver_q = data.qpos[:n], data.qvel[:n], data.qpos
        self._ctrl, self._act, self._warnings = data.ctrl[:n], data.act[:n], data.warning.number
        self._servo, self._plan, self._inertia = (
            np.zeros((5, n)),
            np.zeros((0, n)),
            np.zeros((self.model.nv, self.model.nv)),
        )
        self._stiffness = self.model.actuator_gainprm[:n, 0].copy()
        self._friction = np.zeros(n)
        self._finger = data.ctrl[self.fingers : self.fingers + 1]
        self.move_home()

    @property
    def unstable(self) -> str:
        """What to say of a simulation that became unstable."""
        return (
            f"the simulation of the arm {self.spec.arm.name!r} became unstable; check its servo's stiffness, its "
            "inertias and its actuators"
        )

    def read(self) -> RobotState:
        """Return the state at the end of the last period."""
        data = self._open()
        return RobotState(self._q.copy(), self._dq.copy(), self._driver_q[self.drivers], data.time)

    def now(self) -> float:
        """Return the simulated time [s]."""
        return float(self._open().time)

    def _send(self, command: JointCommand) -> None:
        self._open()
        self._target = command.q
        self.motor.go_to(command.gripper, self.late_share * self.spec.period_s)

    def advance(self) -> None:
        """Integrate one control period."""
        data, rate_hz = self._open(), self.physics_rate_hz
        steps = max(1, round(self.period_share * self.substeps))
        mujoco.mj_fullM(self.model, data, self._inertia)
        count = -(-steps // STEPS_TOGETHER)
        if count >= len(self._plan):
            self._plan = np.zeros((count + 1, self._joints))
        follow_period(
            *self._law, self._servo, self._target, self.late_share * steps / rate_hz, 1.0 / rate_hz, steps,
            self._inertia, self._stiffness, self._friction, self._act, self._plan,
        )  # fmt: skip
        self._close_fingers(steps)
        for node in range(count):
            self._ctrl[:] = self._plan[node]
            self.integrate(data, min(steps, STEPS_TOGETHER))
            steps -= STEPS_TOGETHER
        if self._warnings[UNSTABLE]:
            raise RobotError(self.unstable)

    def keep_to(self, q: Array, v: Array, a: Array) -> None:
        """Integrate one physics step of a motion that something else plans, with the arm where the motion is.

        Args:
            q: (n,) joint angles at the step's beginning [rad].
            v: (n,) joint speeds in the step [rad/s].
            a: (n,) joint accelerations [rad/s^2].
        """
        data = self._open()
        mujoco.mj_fullM(self.model, data, self._inertia)
        self._act[:] = motor_targets(q, v, a, self._inertia, self._stiffness)
        self._ctrl[:] = 0.0
        self._close_fingers(1)
        self.integrate(data, 1)
        if self._warnings[UNSTABLE]:
            raise RobotError(self.unstable)

    def _close_fingers(self, steps: int) -> None:
        """Set the target that the fingers have after so many physics steps."""
        gripper = self.spec.gripper
        measured = gripper.closed_fraction(self._driver_q[self.drivers])
        self._finger[0] = gripper.control_at(self.motor.advance(steps / self.physics_rate_hz, measured))

    def integrate(self, data: mujoco.MjData, steps: int) -> None:
        """Do physics steps."""
        mujoco.mj_step(self.model, data, steps)

    def move_to(self, q: Array) -> None:
        """Place the arm at q, at rest, with the gripper open."""
        data = self._open()
        mujoco.mj_resetData(self.model, data)
        data.qpos[: self._joints] = data.act[: self._joints] = q
        self._servo[:] = 0.0
        self._servo[TARGET:] = q
        self._open_gripper(data)
        self.motor.place(0.0)
        self._target = q.copy()
        mujoco.mj_forward(self.model, data)

    def stop(self) -> None:
        """Hold the servo's target where it is."""
        if self.model is not None:
            self._target = self._servo[TARGET].copy()
            self._servo[COMMAND] = self._target

    def close(self) -> None:
        """Discard the model."""
        self.model = None

    def vary(self, variation: Variation) -> None:
        """Change the cell's physics until the next change."""
        model = self.own_model()
        assert self._varied is not None
        self._varied.apply(variation)
        self.variation = variation
        self._law = plain(self.spec.law.varied(variation.servo_lag, variation.servo_damping))
        self._stiffness = model.actuator_gainprm[: self._joints, 0].copy()
        self._friction = variation.friction_of(self._joints)
        self.motor.share, self.motor.delay_s = variation.gripper_speed, variation.gripper_delay_s

    def become(self, models: Mapping[str, ObjectModel]) -> None:
        """Make objects others of the same names, until they become others again."""
        self.own_model()
        assert self._varied is not None
        for item in models.values():
            self._varied.become(item)
        self.vary(self.variation)

    def own_model(self) -> mujoco.MjModel:
        """Return the model to change it: a copy of the cell's, which others share, made at the first call."""
        self._open()
        if self._varied is None:
            self.model = copy(self._cell.model)
            self._varied = VariedModel(self.model, self.spec, self.object_models)
        return self.model

    def tool_position(self) -> Array:
        """Return the tool centre point's position (3,) [m]."""
        self._open()
        position: Array = self._tool.copy()
        return position

    def objects(self) -> Objects:
        """Return the objects that lie in the scene."""
        return SimulatedObjects(self)

    def place(self, poses: Mapping[str, Pose]) -> None:
        """Place objects at rest; they lie higher if the table is higher than known, or if they are larger."""
        data = self._open()
        for name, pose in poses.items():
            position = pose.position if self._varied is None else pose.position + self._varied.lifts(name)
            data.joint(name).qpos[:] = [*position, *quaternion(pose.rotation)]
        mujoco.mj_forward(self.model, data)

    def object_poses(self) -> dict[str, Pose]:
        """Return the poses of the objects, by name."""
        self._open()
        return {name: Pose(xpos.copy(), xmat.copy()) for name, (xpos, xmat) in self._bodies.items()}

    def _open_gripper(self, data: mujoco.MjData) -> None:
        """Open a gripper whose drivers are not at zero when open."""
        gripper = self.spec.gripper
        if gripper.driver_open != 0.0:
            set_gripper(self.model, data, gripper, gripper.drivers_at(0.0))
            data.ctrl[self.fingers] = gripper.control_at(0.0)

    def _open(self) -> mujoco.MjData:
        if self.model is None:
            raise RobotError("the simulated arm is not connected; call connect() first")
        return self.data


class SimulatedObjects(Objects):
    """The objects of a simulated cell, as a perfect tracker sees them."""

    def __init__(self, robot: MujocoRobot) -> None:
        self._robot, self._number = robot, 0
        self._at_s, self._poses = -1.0, dict[str, Pose]()

    def become(self, models: Mapping[str, ObjectModel]) -> None:
        """Make the objects others."""
        self._robot.become(models)

    def arrange(self, poses: Mapping[str, Pose]) -> Mapping[str, Pose]:
        """Place the objects at once."""
        self._robot.place(poses)
        self._at_s = -1.0
        return self.truth()

    def read(self) -> Mapping[str, Sighting]:
        """Return sightings from the simulation."""
        self._number += 1
        return {name: Sighting(pose, 0.0, self._number) for name, pose in self.truth().items()}

    def truth(self) -> Mapping[str, Pose]:
        """Return the poses from the simulation, computed once a period."""
        if (now := self._robot.now()) != self._at_s:
            self._at_s, self._poses = now, self._robot.object_poses()
        return self._poses
