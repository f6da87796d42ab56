"""How fast targets are played, given the measured tool speed. Plain Python: this runs in the worker's loop.

The guard bounds commands, and the arm as its servo's lag predicts it. A real arm may overshoot, and its joints may
catch up unevenly, so that its tool is faster than any of its commands. Playing the commands slower asks less of it.
"""

# Above this share of the limit, targets are played slower: by GAIN times the excess. The tool responds within a servo's
# lag of 0.1 s, so a loop of this gain and 8 ms does not oscillate.
BEGINS_AT, GAIN = 0.92, 5.0
# Lower bound: the deciding process waits as much longer in its next period, and one period does not make a target late.
SLOWEST = 0.5


def speed_scale(speed: float, limit: float) -> float:
    """Return the factor, at most 1, on the planned speed at which targets are played.

    Args:
        speed: Measured tool speed [m/s].
        limit: Limit that it should stay below [m/s].
    """
    return min(1.0, max(SLOWEST, 1.0 - GAIN * (speed / limit - BEGINS_AT)))
