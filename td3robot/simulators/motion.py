"""How the controller's reference moves: one class per kind of motion, one step per period.

A reference has a posture q and a velocity v. The servo follows its target with a lag T, so the target that makes the
arm follow the reference is q + T v; for servoJ, that is exactly the received target.
"""

from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from td3robot.simulators.arm import PERIOD_S, SimulatedArm
from td3robot.simulators.presets import NOMINAL_CELL, LimitModel, ServoModel
from td3robot.state import Array

# The gain at which a servo has its damping; ur_rtde's default, and the lowest but 100 that URScript accepts.
USUAL_GAIN = 300.0
# A trajectory is never slowed down below this share.
SLOWEST = 0.01


class Reference:
    """Where the controller wants the arm to be: q (6,) [rad] and v (6,) [rad/s]."""

    def __init__(self, q: Array) -> None:
        self.q, self.v = q.copy(), np.zeros_like(q)

    def move(self, v: Array, lag_s: float) -> Array:
        """Move for one period at a velocity, and return the servo's target."""
        self.v = v
        target: Array = self.q + lag_s * v
        self.q = self.q + v * PERIOD_S
        return target


class Motion(ABC):
    """One kind of motion.

    Attributes:
        done: Whether it is over.
        releases: Whether the arm, once at rest after this motion, is held wherever it came to rest.
    """

    done = False
    releases = False

    @abstractmethod
    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Advance the reference by one period at ``scale`` of its speed, and return the servo's target (6,) [rad]."""

    def braked(self, deceleration: float) -> "Motion":
        """Return the motion that ends this one, with the fastest joint's deceleration [rad/s^2]."""
        return Brake(deceleration)

    def servoed(self, q: Array, model: ServoModel) -> "Servo":
        """Return the servo that takes over from this motion, with its first target at q (6,) [rad]."""
        return Servo(q, model)


class Hold(Motion):
    """Stay at rest."""

    done = True

    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Keep the posture."""
        return reference.move(np.zeros_like(reference.q), lag_s)


class Servo(Motion):
    """servoJ: move to each target in a straight line within its time, followed as the servo's model says.

    With little enough damping, the reference follows the goal like a mass on a spring: with the lag T of the lookahead
    time (2 zeta / omega for a ramp), ``a = omega^2 (goal - q) - 2 zeta omega v`` and ``omega = 2 zeta / T``. URScript's
    manual says that a higher gain reacts faster and may overshoot: zeta falls with its square root (assumed).

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
        self._model, self._gain = model, USUAL_GAIN
        self._coming: deque[tuple[float, Array, float]] = deque()
        self._now_s = self._call_s = self._call_left_s = 0.0
        self.skipped = self.repeated = 0
        self._v: Array | None = None

    def servoed(self, q: Array, model: ServoModel) -> "Servo":
        """Return this servo: it is already following targets."""
        return self

    def aim(self, target: Array, time_s: float, gain: float = USUAL_GAIN) -> None:
        """Add a new target (6,) [rad], to be reached ``time_s`` after it takes effect."""
        self.target, self._gain = target.copy(), gain
        self._coming.append((self._now_s + self._model.transport_s, self.target, max(time_s, PERIOD_S)))

    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Move the goal towards the target and let the reference follow, both slowed down by the slider."""
        if not self._model.blocks or self._call_left_s <= 1e-9:
            self._call()
        self._now_s += PERIOD_S
        self._call_left_s -= scale * PERIOD_S
        if self._left_s > 1e-9:
            self.goal = self.goal + (self._aim - self.goal) * min(1.0, scale * PERIOD_S / self._left_s)
            self._left_s -= scale * PERIOD_S
        return reference.move(scale * self._velocity(reference, lag_s), lag_s)

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

    def _velocity(self, reference: Reference, lag_s: float) -> Array:
        away: Array = self.goal - reference.q
        if self._model.damping is None:
            return away / lag_s
        zeta = np.array(self._model.damping) * (USUAL_GAIN / self._gain) ** 0.5
        omega = 2.0 * zeta / lag_s
        v = reference.v if self._v is None else self._v
        self._v = v + PERIOD_S * (omega**2 * away - 2.0 * zeta * omega * v)
        return self._v


class Speed(Motion):
    """speedJ: keep a joint velocity until something else is commanded."""

    def __init__(self, velocity: Array, acceleration: float) -> None:
        self.velocity, self.acceleration = velocity, acceleration

    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Change the velocity by no more than the acceleration allows, the whole vector at once."""
        change = self.velocity * scale - reference.v
        largest = float(np.abs(change).max())
        limit = abs(self.acceleration) * PERIOD_S
        return reference.move(reference.v + change * min(1.0, limit / largest if largest > 0 else 1.0), lag_s)


class Move(Motion):
    """moveJ: all joints in step along a straight line, the leading one with a trapezoidal speed profile."""

    def __init__(self, start: Array, end: Array, speed: float, acceleration: float) -> None:
        self._start, self._way = start.copy(), end - start
        self._length = float(np.abs(self._way).max())
        self._speed, self._acceleration = abs(speed), abs(acceleration)
        self._made, self._rate = 0.0, 0.0

    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Speed up, cruise, or slow down to stop at the end."""
        left = self._length - self._made
        limit = (2 * self._acceleration * max(left, 0.0)) ** 0.5
        self._rate = min(self._rate + self._acceleration * PERIOD_S, self._speed * scale, limit, left / PERIOD_S)
        self._made += self._rate * PERIOD_S
        if self._length - self._made < 1e-6:
            self.done = True
        if self._length == 0.0:
            return reference.move(np.zeros_like(self._way), lag_s)
        goal = self._start + self._way * min(1.0, self._made / self._length)
        return reference.move((goal - reference.q) / PERIOD_S, lag_s)


class Brake(Motion):
    """Brake to rest along the present direction; ``deceleration`` is the fastest joint's [rad/s^2]."""

    releases = True

    def __init__(self, deceleration: float) -> None:
        self._deceleration = max(abs(deceleration), 1e-3)

    def braked(self, deceleration: float) -> Motion:
        """Return this motion: it is already braking."""
        return self

    def step(self, reference: Reference, lag_s: float, scale: float) -> Array:
        """Slow down."""
        speed = float(np.abs(reference.v).max())
        loss = self._deceleration * PERIOD_S
        if speed <= loss:
            self.done = True
            return reference.move(np.zeros_like(reference.v), lag_s)
        return reference.move(reference.v * (1.0 - loss / speed), lag_s)


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
