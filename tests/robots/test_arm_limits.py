"""The limits hold for the simulated arm itself, not only for its commands: what a search for the opposite found."""

import numpy as np
import pytest
from cross_limits import AIMS, POLICIES, SERVOS, Adversary, search

from td3robot.config import GuardConfig

LIMIT = GuardConfig().max_tcp_speed_m_s
# Found by benchmarks/cross_limits.py: a start, and joint velocities for two periods each. The arm went at 257.9 mm/s
# while the guard bounded commands alone.
FASTEST = (
    (-0.7, 0.53, -0.84, -1.23, 1.8, -0.78),
    (-0.28, -0.46, -0.88, 0.24, 0.4, 1.73),
    (-0.67, -0.92, -1.8, -2.13, 0.29, 0.48),
    (-0.21, 0.36, -0.72, -1.3, 0.96, -0.27),
    (-0.36, -0.37, -0.72, 0.79, 0.74, 0.3),
    (-0.76, -1.35, -1.3, -0.15, 1.29, -0.46),
    (-0.32, -0.98, -2.0, -0.06, 0.43, 1.07),
    (-0.34, 0.62, -1.1, -1.4, 1.51, 1.33),
)


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "whole"])
@pytest.mark.parametrize("servo", ["undisturbed", "slow", "quick"])
@pytest.mark.quick("undisturbed-whole", "slow-lean")
def test_the_fastest_arm_that_was_found_stays_below_the_limit(servo, lean):
    reached = Adversary(SERVOS[servo], lean).play("burst", np.ravel(FASTEST))
    assert reached.periods == POLICIES["burst"].periods
    assert 0.2 < reached.speed_m_s <= LIMIT


@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.quick("network-speed", "sequence-workspace")
def test_a_short_search_finds_nothing_above_the_limits(policy, aim):
    reached, replayed = search(SERVOS["undisturbed"], policy, aim, generations=2, seed=0, population=16)
    assert reached.periods > 50
    for each in (reached, replayed):
        assert each.speed_m_s <= LIMIT and each.outside_m <= 0.0 and not each.fast and not each.out


def test_the_lean_arm_moves_as_the_whole_one():
    lean, whole = (Adversary(SERVOS["overshooting"], lean).play("burst", np.ravel(FASTEST)) for lean in (True, False))
    assert lean.speed_m_s == pytest.approx(whole.speed_m_s, abs=1e-5)
    assert lean.outside_m == pytest.approx(whole.outside_m, abs=1e-5)
    assert lean.fast > 0, "a search that finds nothing with any arm shows nothing"
