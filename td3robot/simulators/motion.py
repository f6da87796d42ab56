"""How the controller's reference moves: one class per kind of motion, one step per period.

The arm keeps to the reference: in recordings of e-Series arms, the joints are 0.2 to 0.6 ms behind it. What lags is the
reference of servoJ, by the law of its gain and its lookahead time (``robots/servo.py``).
"""

from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from td3robot.robots.arms import UR_LAW, ServoLaw
from td3robot.robots.servo import follow_line
from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.presets import NOMINAL_CELL, LimitModel, ServoModel
from td3robot.state import Array

# A trajectory is never slowed down below this share.
SLOWEST = 0.01


class Reference:
    """Where the controller wants the arm to be: q (6,) [rad], v (6,) [rad/s], and a (6,) [rad/s^2] at last."""

    def __init__(self, q: Array) -> None:
        self.q, self.v, self.a = q.copy(), np.zeros_like(q), np.zeros_like(q)

    def move(self, v: Array) -> None:
        """Move for one period at a velocity."""
        self.a = (v - self.v) / PERIOD_S
        self.v = v
        self.q = self.q + v * PERIOD_S


class Motion(ABC):
    """One kind of motion.

    Attributes:
        done: Whether it is over.
        releases: Whether the arm, once at rest after this motion, is held wherever it came to rest.
    """

    done = False
    releases = False

    @abstractmethod
    def step(self, reference: Reference, scale: float) -> None:
        """Move the reference on by one period, at ``scale`` of its speed."""

    def braked(self, deceleration: float) -> "Motion":
        """Return the motion that ends this one, with the fastest joint's deceleration [rad/s^2]."""
        return Brake(deceleration)

    def servoed(self, q: Array, model: ServoModel) -> "Servo":
        """Return the servo that takes over from this motion, with its first target at q (6,) [rad]."""
        return Servo(q, model)


class Hold(Motion):
    """Stay at rest."""

    done = True

    def step(self, reference: Reference, scale: float) -> None:
        """Keep the posture."""
        reference.move(np.zeros_like(reference.q))


class Servo(Motion):
    """servoJ: a goal moves to each target in a straight line within its time, and the reference follows by the law.

    A blocking servo takes the newest target when the time of the previous one is over, or the same one again if none
    arrived, like a thread that calls URScript's servoj in a loop.

    Attributes:
        goal: The current point on the straight line to the target (6,) [rad].
        target: The newest received target (6,) [rad].
        skipped: Targets that were never servoed to, because newer ones had arrived.
        repeated: Calls without a new target.
    """

    def __init__(self, q: Array, model: ServoModel = NOMINAL_CELL.servo) -> None:
        self.goal, self.target = q.copy(), q.copy()
        self._aim, self._left_s = q.copy(), 0.0
        self._model, self._law = model, UR_LAW
        self._coming: deque[tuple[float, Array, float]] = deque()
        self._now_s = self._call_s = self._call_left_s = 0.0
        self.skipped = self.repeated = 0
        self._v: Array | None = None  # as if at full speed

    def servoed(self, q: Array, model: ServoModel) -> "Servo":
        """Return this servo: it is already following targets."""
        return self

    def aim(self, target: Array, time_s: float, law: ServoLaw = UR_LAW) -> None:
        """Add a new target (6,) [rad], to be reached ``time_s`` after it takes effect."""
        self.target, self._law = target.copy(), law
        self._coming.append((self._now_s + self._model.transport_s, self.target, max(time_s, PERIOD_S)))

    def step(self, reference: Reference, scale: float) -> None:
        """Move the goal towards the target and let the reference follow, both slowed down by the slider."""
        if not self._model.blocks or self._call_left_s <= 1e-9:
            self._call()
        self._now_s += PERIOD_S
        self._call_left_s -= scale * PERIOD_S
        before = self.goal
        if self._left_s > 1e-9:
            self.goal = before + (self._aim - before) * min(1.0, scale * PERIOD_S / self._left_s)
            self._left_s -= scale * PERIOD_S
        if self._v is None:
            self._v = reference.v / max(scale, SLOWEST)
        q = reference.q.copy()
        if scale > 0.0:
            gain, lookahead_s = self._laws()
            follow_line(gain, lookahead_s, scale * PERIOD_S, before, self.goal, q, self._v)
        reference.move((q - reference.q) / PERIOD_S)

    def _laws(self) -> tuple[Array, float]:
        """Return the gains of all joints (6,) and the lookahead time: as damping is assumed."""
        factors = np.ones(6) if self._model.damping is None else np.array(self._model.damping)
        return self._law.gain * factors**2, self._law.lookahead_s

    def _call(self) -> None:
        """Servo to the newest target in effect, or once more to the previous one."""
        came = 0
        while self._coming and self._coming[0][0] <= self._now_s + 1e-9:
            _, self._aim, self._left_s = self._coming.popleft()
            self._call_s = self._left_s
            came += 1
        self.skipped += max(came - 1, 0)
        self.repeated += came == 0
        self._call_left_s = self._call_s


class Speed(Motion):
    """speedJ: keep a joint velocity until something else is commanded."""

    def __init__(self, velocity: Array, acceleration: float) -> None:
        self.velocity, self.acceleration = velocity, acceleration

    def step(self, reference: Reference, scale: float) -> None:
        """Change the velocity by no more than the acceleration allows, the whole vector at once."""
        change = self.velocity * scale - reference.v
        largest = float(np.abs(change).max())
        limit = abs(self.acceleration) * PERIOD_S
        reference.move(reference.v + change * min(1.0, limit / largest if largest > 0 else 1.0))


class Move(Motion):
    """moveJ: all joints in step along a straight line, the leading one with a trapezoidal speed profile."""

    def __init__(self, start: Array, end: Array, speed: float, acceleration: float) -> None:
        self._start, self._way = start.copy(), end - start
        self._length = float(np.abs(self._way).max())
        self._speed, self._acceleration = abs(speed), abs(acceleration)
        self._made, self._rate = 0.0, 0.0

    def step(self, reference: Reference, scale: float) -> None:
        """Speed up, cruise, or slow down to stop at the end."""
        left = self._length - self._made
        limit = (2 * self._acceleration * max(left, 0.0)) ** 0.5
        self._rate = min(self._rate + self._acceleration * PERIOD_S, self._speed * scale, limit, left / PERIOD_S)
        self._made += self._rate * PERIOD_S
        if self._length - self._made < 1e-6:
            self.done = True
        goal = self._start + self._way * (min(1.0, self._made / self._length) if self._length > 0.0 else 0.0)
        reference.move((goal - reference.q) / PERIOD_S)


class Brake(Motion):
    """Brake to rest along the present direction; ``deceleration`` is the fastest joint's [rad/s^2]."""

    releases = True

    def __init__(self, deceleration: float) -> None:
        self._deceleration = max(abs(deceleration), 1e-3)

    def braked(self, deceleration: float) -> Motion:
        """Return this motion: it is already braking."""
        return self

    def step(self, reference: Reference, scale: float) -> None:
        """Slow down."""
        speed = float(np.abs(reference.v).max())
        loss = self._deceleration * PERIOD_S
        self.done = speed <= loss
        reference.move(reference.v * (0.0 if self.done else 1.0 - loss / speed))


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

    def update(self, reference: Reference) -> None:
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
