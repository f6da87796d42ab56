"""What a rehearsal's tracker saw, beside where the objects really were."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from td3robot.simulators.camera_process import Shot
from td3robot.state import Array

# A frame that left later than this was not drawn in time [s].
LATE_S = 0.002


def compared(sightings: Sequence[tuple[str, float, Array]], shots: Sequence[Shot]) -> dict[str, Any]:
    """Return how far poses are from the truth, by the frame whose exposure is nearest to each stamp.

    Args:
        sightings: Name, stamp (Unix time) [s] and position (3,) [m] of every pose that was read.
        shots: Every frame of the camera.

    Returns:
        ``poses``: how many there were; ``error_mm``: their distance from the truth, median, 95 % and largest;
        ``stamp_off_ms``: median time from the exposure to the stamp; ``frames_late``: share of the frames that the
        camera drew too late. None where there is nothing to compare.
    """
    times = np.array([shot.exposed_at for shot in shots])
    errors, offs = [], []
    for name, stamp, position in sightings if len(shots) else ():
        nearest = int(np.abs(times - stamp).argmin())
        errors.append(1e3 * float(np.linalg.norm(position - shots[nearest].positions_m[name])))
        offs.append(1e3 * (stamp - float(times[nearest])))
    return {
        "poses": len(errors),
        "error_mm": _quantiles(errors),
        "stamp_off_ms": float(np.median(offs)) if offs else None,
        "frames_late": float(np.mean([shot.late_s > LATE_S for shot in shots])) if len(shots) else None,
    }


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    p50, p95, largest = np.quantile(values, (0.5, 0.95, 1.0)).tolist()
    return {"p50": p50, "p95": p95, "max": largest}
