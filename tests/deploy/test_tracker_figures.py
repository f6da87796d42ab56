"""A tracker's poses beside the truth, with numbers worked out by hand."""

import numpy as np
import pytest

from td3robot.deploy.tracker_figures import compared
from td3robot.simulators.camera_process import Shot


def shot(at, x, late=0.0):
    return Shot(at, late, {"object": np.array([x, 0.5, 0.02])})


def test_a_pose_is_compared_with_the_frame_that_was_exposed_nearest_to_its_stamp():
    shots = [shot(10.0, 0.0), shot(10.1, 0.1, late=0.01), shot(10.2, 0.2), shot(10.3, 0.3)]
    sightings = [
        ("object", 10.005, np.array([0.003, 0.5, 0.02])),  # 3 mm from the first, 5 ms later
        ("object", 10.207, np.array([0.2, 0.5, 0.025])),  # 5 mm above the third
        ("object", 10.303, np.array([0.3, 0.5, 0.02])),
    ]
    found = compared(sightings, shots)
    assert found["poses"] == 3
    assert found["error_mm"]["p50"] == pytest.approx(3.0) and found["error_mm"]["max"] == pytest.approx(5.0)
    assert found["stamp_off_ms"] == pytest.approx(5.0, abs=1e-3)
    assert found["frames_late"] == 0.25


def test_without_frames_or_poses_nothing_is_said_of_the_truth():
    nothing = {"poses": 0, "error_mm": None, "stamp_off_ms": None}
    assert compared([], []) == nothing | {"frames_late": None}
    assert compared([], [shot(1.0, 0.0)]) == nothing | {"frames_late": 0.0}
    assert compared([("object", 1.0, np.zeros(3))], []) == nothing | {"frames_late": None}
