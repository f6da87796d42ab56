"""Datagrams of a camera whose figures are known."""

import numpy as np

from td3robot.robots.camera_figures import Arrival


def camera(rate_hz, latency_s=0.0, jitter_s=0.0, drop=0.0, noise_m=0.0, stamped="exposed", seconds=2.0, seed=0):
    """Make the datagrams of a camera whose clock is 1e9 s ahead of the monotonic one; frames keep their order."""
    rng, found, due = np.random.default_rng(seed), [], 0.0
    for exposed in np.arange(0.0, seconds, 1.0 / rate_hz):
        late, lost = latency_s + rng.uniform(0.0, jitter_s), rng.random() < drop
        if lost:
            continue
        due = max(due, exposed + late) + 1e-6
        stamp = exposed if stamped == "exposed" else due
        position = np.array([0.1, 0.5, 0.02]) + rng.normal(0.0, noise_m, 3)
        found.append(Arrival("object", 1e9 + stamp, 1e9 + due + 2e-4, due + 2e-4, position))
    return found
