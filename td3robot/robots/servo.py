"""How joints follow their targets: the law of an arm's servo (``arms/model.py``), solved exactly over any time.

The simulations, the guard's prediction and the simulated controller use it; benchmarks/servo.py compares it with
recordings of a UR5e.
"""

from math import cos, exp, expm1, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from td3robot.jit import formula, kernel
from td3robot.state import Array


@kernel
def decay(gain: float, lookahead_s: float, seconds: float) -> tuple[float, float]:
    """Return what :func:`follow` needs to know of a time [s]: one for all joints.

    With ``h = gain lookahead / 2`` and ``w^2 = gain - h^2``, these are ``exp(-h t) cos(w t)`` and ``exp(-h t) sin(w t)
    / w``; beyond critical damping, their hyperbolic forms.
    """
    half = 0.5 * gain * lookahead_s
    squared = gain - half * half
    if squared > 0.0:
        w = sqrt(squared)
        kept = exp(-half * seconds)
        return kept * cos(w * seconds), kept * sin(w * seconds) / w
    r = sqrt(-squared)
    kept = exp(-gain / (half + r) * seconds)  # the slower root, half - r, without cancellation
    if r * seconds < 1e-9:
        return kept, kept * seconds
    return kept * (1.0 + exp(-2.0 * r * seconds)) / 2.0, -kept * expm1(-2.0 * r * seconds) / (2.0 * r)


@formula
def follow(
    gain: float, lookahead_s: float, cosine: float, sine: float, behind: float, speed: float, velocity: float
) -> tuple[float, float]:
    """Move a joint on by the time of a :func:`decay`, in which its target moves at a velocity.

    Args:
        gain: The law's.
        lookahead_s: The law's.
        cosine: Of the time.
        sine: Of the time.
        behind: How far the joint is behind its target [rad].
        speed: How fast it moves [rad/s].
        velocity: How fast its target moves [rad/s].

    Returns:
        How far it is behind its target afterwards, and how fast it moves.
    """
    half = 0.5 * gain * lookahead_s
    more, less = behind - lookahead_s * velocity, speed - velocity  # than in steady motion
    return (
        (cosine + half * sine) * more - sine * less + lookahead_s * velocity,
        gain * sine * more + (cosine - half * sine) * less + velocity,
    )


@kernel
def rub(moved: Array, speed: Array, friction: Array, drag: Array) -> NDArray[np.bool_]:
    """Let dry friction hold joints back from where their servos would have them.

    Coulomb friction and a motor's stiffness in series: a joint follows only once it is behind by its friction.

    Args:
        moved: (n,) how far the servos would have moved the joints [rad].
        speed: (n,) the speeds that the servos ask for [rad/s].
        friction: (n,) each joint's torque of friction over its motor's stiffness [rad].
        drag: (n,) how far friction holds the joints back [rad]; changed.

    Returns:
        (n,) whether each joint moves as its servo asks; otherwise it stands still.
    """
    moves = np.empty(len(drag), np.bool_)
    for joint in range(len(drag)):
        most = friction[joint]
        drag[joint] = min(max(drag[joint] + moved[joint], -most), most)
        moves[joint] = abs(drag[joint]) >= most and drag[joint] * speed[joint] >= 0.0
    return moves


@kernel
def follow_line(
    gain: Array, lookahead_s: float, seconds: float, target: Array, end: Array, q: Array, speed: Array
) -> None:
    """Let joints follow targets that move to others in straight lines.

    Args:
        gain: (n,) each joint's [1/s^2].
        lookahead_s: All joints' [s].
        seconds: How long the targets take.
        target: (n,) where they begin [rad].
        end: (n,) where they end [rad].
        q: (n,) the joints' angles [rad]; changed.
        speed: (n,) their speeds [rad/s]; changed.
    """
    for joint in range(len(q)):
        velocity = (end[joint] - target[joint]) / seconds
        cosine, sine = decay(gain[joint], lookahead_s, seconds)
        behind, speed[joint] = follow(
            gain[joint], lookahead_s, cosine, sine, target[joint] - q[joint], speed[joint], velocity
        )
        q[joint] = end[joint] - behind
