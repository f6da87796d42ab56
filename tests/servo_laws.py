"""What the law of UR's servoj says of some gains and lookahead times, worked out by hand."""

from math import exp, pi, sqrt

# Gain, lookahead time [s]: 300 and 0.1 is the only pair of which recordings exist.
LAWS = {
    (300.0, 0.1): 0.866,
    (300.0, 0.03): 0.26,
    (100.0, 0.1): 0.5,
    (1200.0, 0.03): 0.52,
    (2000.0, 0.1): 2.24,
}


def overshoot(damping):
    """Return by what share a step is overshot at a damping ratio."""
    return exp(-pi * damping / sqrt(1.0 - damping**2)) if damping < 1.0 else 0.0
