"""How fast targets are played, by the measured speed of the tool. Plain Python: this runs in the worker's loop.

The guard bounds commands, and the arm that its servo's lag predicts. A real arm may overshoot, and its joints may catch
up unevenly: its tool is then faster than any of its commands. Played slower, they are what is asked of it less quickly.
"""

# From this share of the limit on, targets are played slower: by GAIN times what the tool is above it. The tool answers
# within a servo's lag of 0.1 s, so that a loop of this gain and 8 ms does not swing.
BEGINS_AT, GAIN = 0.92, 5.0
# Never slower than this: the deciding process waits as long in its next period, and one period is no late target.
SLOWEST = 0.5


def pace(speed: float, limit: float) -> float:
    """Return by which factor targets are played slower than they were planned, 1 at most.

    Args:
        speed: Of the tool, as measured [m/s].
        limit: What it is to stay below [m/s].
    """
    return min(1.0, max(SLOWEST, 1.0 - GAIN * (speed / limit - BEGINS_AT)))
