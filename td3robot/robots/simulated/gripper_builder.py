"""Building a parallel gripper's MuJoCo model from boxes, for grippers that no library models."""

from collections.abc import Sequence

import mujoco
import numpy as np

Vector = Sequence[float]

# The actuator of every gripper built here takes counts from 0 (open) to 255 (closed), as the Menagerie's 2F-85 does.
ACTUATOR, CONTROL_CLOSED = "fingers_actuator", 255.0
# Pads, from the Menagerie's 2F-85: friction of tip and root half, contact stiffness, and mass [kg].
PAD_FRICTION = (0.7, 0.6)
PAD_SOLIMP, PAD_SOLREF = (0.95, 0.99, 0.001), (0.004, 1.0)
PAD_KG = 0.0035
# Joint couplings and limits, likewise. 5 ms is the shortest that 400 Hz physics allows: two steps.
STIFF_SOLIMP, STIFF_SOLREF = (0.95, 0.99, 0.001), (0.005, 1.0)
# A driver's inertia over its damping [s]: two steps of 400 Hz physics. Assumed: fingers at full speed stop within a
# fraction of a millimetre. Below half a step they chatter on an object, since the contact solver does not see damping
# that is integrated implicitly.
ROTOR_S = 0.005
# Time constant of the last part of a motion [s]. Assumed.
LAG_S = 0.02
DARK, GREY, RUBBER = (0.15, 0.15, 0.15, 1.0), (0.46, 0.46, 0.46, 1.0), (0.2, 0.2, 0.2, 1.0)


class GripperBuilder:
    """A model under construction. Its body ``base_mount`` goes on the flange, z out of it; the fingers close along x.

    Attributes:
        spec: The model built so far.
        base: The gripper's housing, a coupling's thickness beyond the flange.
    """

    def __init__(self, name: str, coupling_m: float) -> None:
        self.spec = mujoco.MjSpec()
        self.spec.modelname = name
        self.spec.compiler.degree = False  # by default, a model built in code takes joint ranges in degrees
        self.base = self.body(self.body(self.spec.worldbody, "base_mount", (0, 0, 0)), "base", (0, 0, coupling_m))

    def body(
        self, parent: mujoco.MjsBody, name: str, pos: Vector, turn: float = 0.0, axis: Vector = (0, 0, 1)
    ) -> mujoco.MjsBody:
        """Add a body at pos (3,) [m], turned about an axis (3,) by an angle [rad], in the parent's frame."""
        quat = np.zeros(4)
        mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, dtype=float), turn)
        return parent.add_body(name=name, pos=list(pos), quat=quat)

    def inertia(self, body: mujoco.MjsBody, mass: float, center: Vector, size: Vector) -> None:
        """Give a body the inertia of a solid box, from its mass [kg], center (3,) [m] and size (3,) [m]."""
        x, y, z = (extent**2 / 12.0 * mass for extent in size)
        body.explicitinertial = True
        body.mass, body.ipos, body.inertia = mass, list(center), [y + z, x + z, x + y]

    def box(self, body: mujoco.MjsBody, name: str, low: Vector, high: Vector, rgba: Vector = DARK) -> mujoco.MjsGeom:
        """Add a collision box between two corners (3,) in the body's frame [m]."""
        a, b = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        box = mujoco.mjtGeom.mjGEOM_BOX
        return body.add_geom(name=name, type=box, pos=(a + b) / 2, size=(b - a) / 2, rgba=list(rgba))

    def housing(self, radius: float, low: float, high: float) -> None:
        """Add a collision cylinder of a radius [m] around the base's z axis, between two heights [m]."""
        self.base.add_geom(
            name="housing", type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=[0, 0, (low + high) / 2], size=[radius, (high - low) / 2, 0], rgba=list(DARK),
        )  # fmt: skip

    def pads(
        self, finger: mujoco.MjsBody, side: str, face_x: float, z: tuple[float, float], width: float, depth: float
    ) -> None:
        """Add a finger's pad: two boxes, ``_pad1`` at the tip and ``_pad2`` at the root.

        Args:
            finger: The body that the pad is fixed to; -x points to the other finger.
            side: Right or left.
            face_x: Position of the gripping face in the finger's frame [m].
            z: From root to tip [m].
            width: Extent along y [m].
            depth: Extent along x [m].
        """
        pad = self.body(finger, f"{side}_pad", (0, 0, 0))
        middle, half = sum(z) / 2, width / 2
        for number, (low, high) in enumerate(((middle, z[1]), (z[0], middle)), start=1):
            box = self.box(pad, f"{side}_pad{number}", (face_x, -half, low), (face_x + depth, half, high), RUBBER)
            box.friction[0], box.priority = PAD_FRICTION[number - 1], 1
            box.solimp[:3], box.solref[:2] = PAD_SOLIMP, PAD_SOLREF
        self.inertia(pad, PAD_KG, (face_x + depth / 2, 0, middle), (depth, width, z[1] - z[0]))

    def hinge(self, body: mujoco.MjsBody, name: str, limits: tuple[float, float], armature: float = 0.0) -> None:
        """Add a hinge with limits [rad] that turns a finger on +x inwards."""
        joint = self._joint(body, name, mujoco.mjtJoint.mjJNT_HINGE, (0, -1, 0), limits)
        joint.armature = armature

    def slide(self, body: mujoco.MjsBody, name: str, limits: tuple[float, float]) -> None:
        """Add a slide with limits [m] that moves a finger on +x inwards."""
        self._joint(body, name, mujoco.mjtJoint.mjJNT_SLIDE, (-1, 0, 0), limits)

    def couple(self, joint: str, to: str, share: float) -> None:
        """Couple one joint to a multiple of another."""
        equality = self.spec.add_equality(
            type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, name1=joint, name2=to
        )
        equality.data[:2] = [0.0, share]
        equality.solimp[:3], equality.solref[:2] = STIFF_SOLIMP, STIFF_SOLREF

    def actuator(self, drivers: tuple[str, str], driver_closed: float, effort: float, closing_rate: float) -> None:
        """Couple both drivers and move them as the device's motor does, with limited effort and speed.

        A position servo saturates at the grip effort and works against damping that keeps it from closing faster than
        the device: it moves at constant speed, rests on an object with exactly that effort, and cannot be pushed open
        quickly.

        Args:
            drivers: Names of the driver joints, right and left.
            driver_closed: Their position when closed; 0 is open.
            effort: Effort of each driver at rest on an object [N m] or [N].
            closing_rate: Largest change of the closed fraction [1/s].
        """
        self.couple(*drivers, 1.0)
        damping = effort / (closing_rate * driver_closed)
        stiffness = 2.0 * damping / LAG_S  # of both drivers together
        tendon = self.spec.add_tendon(name="split")
        for name in drivers:
            joint = self.spec.joint(name)
            joint.damping[0], joint.armature = damping, damping * ROTOR_S
            tendon.wrap_joint(name, 0.5)
        servo = self.spec.add_actuator(name=ACTUATOR, target="split", trntype=mujoco.mjtTrn.mjTRN_TENDON)
        servo.gaintype, servo.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
        servo.gainprm[0] = stiffness * driver_closed / CONTROL_CLOSED
        servo.biasprm[:3] = [0.0, -stiffness, 0.0]
        servo.ctrlrange, servo.ctrllimited = [0.0, CONTROL_CLOSED], True
        servo.forcerange, servo.forcelimited = [-2.0 * effort, 2.0 * effort], True

    def _joint(
        self, body: mujoco.MjsBody, name: str, kind: mujoco.mjtJoint, axis: Vector, limits: tuple[float, float]
    ) -> mujoco.MjsJoint:
        joint = body.add_joint(name=name, type=kind, axis=list(axis), range=list(limits), limited=True)
        joint.solimp_limit[:3], joint.solref_limit[:2] = STIFF_SOLIMP, STIFF_SOLREF
        return joint
