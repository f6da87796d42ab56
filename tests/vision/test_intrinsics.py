"""A lens is found from views of the board, and views that do not tell it are refused with the reason."""

import numpy as np
import pytest
from board_pictures import LENS, SIZE, BoardPictures, held, poses

from td3robot.errors import CameraError
from td3robot.vision.intrinsics import ViewCollector, calibrate_lens, coverage
from td3robot.vision.tags import charuco_board
from td3robot.vision.target import BoardTarget, Points

CORNERS = np.asarray(charuco_board().getChessboardCorners(), np.float64)


def seen(pose, camera=LENS, bend_m=0.0, noise_px=0.1, rng=None):
    """Return what a camera sees of the board, without drawing it."""
    rng = rng or np.random.default_rng(0)
    bent = CORNERS.copy()
    bent[:, 2] += bend_m * (2 * (CORNERS[:, 0] - SIZE[0] / 2) / SIZE[0]) ** 2
    pixels = camera.project(bent @ pose.rotation.T + pose.position) + noise_px * rng.standard_normal((len(bent), 2))
    inside = ((pixels > 2) & (pixels < (camera.width - 3, camera.height - 3))).all(axis=1)
    return Points(np.flatnonzero(inside), CORNERS[inside], pixels[inside])


def views(places, **values):
    rng = np.random.default_rng(1)
    return [seen(pose, rng=rng, **values) for pose in places]


def calibrated(found):
    return calibrate_lens(found, LENS.width, LENS.height)


def refused(found):
    with pytest.raises(CameraError) as error:
        calibrated(found)
    return str(error.value)


def test_a_lens_is_found_from_views_of_the_board():
    lens = calibrated(views(poses(20)))
    np.testing.assert_allclose(lens.camera.matrix, LENS.matrix, rtol=0.005, atol=2.5)
    corners = np.array([[-0.25, -0.2, 0.5], [0.25, 0.2, 0.5], [0.0, 0.0, 0.5]])
    np.testing.assert_allclose(lens.camera.project(corners), LENS.project(corners), atol=3.0)
    assert lens.misfit_px == pytest.approx(0.14, abs=0.02)
    assert (lens.left_out, lens.bend_m) == ((), 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("bend_m", [0.0, 0.003])
def test_a_lens_is_found_from_pictures_or_the_board_is_told_to_be_bent(bend_m):
    board, target = BoardPictures(bend_m=bend_m), BoardTarget()
    found = [points for pose in poses(12) if (points := target.find(board.draw(pose))) is not None]
    if bend_m:
        assert "the board is not flat: it bends by 1." in refused(found)
    else:
        np.testing.assert_allclose(calibrated(found).camera.matrix, LENS.matrix, rtol=0.01, atol=1e-9)


def test_the_pictures_show_the_board_where_the_lens_projects_it():
    pose = held(0.02, -0.01, 0.5, 0.3, -0.2, 0.1)
    points = BoardTarget().find(BoardPictures().draw(pose))
    assert len(points.ids) == len(CORNERS)
    assert points.misfit_px(LENS, pose) < 0.3
    assert BoardTarget().find(np.full((480, 640), 200, np.uint8)) is None


def test_a_view_that_moved_is_left_out():
    found = views(poses(20))
    found[7] = seen(poses(20)[7], noise_px=3.0)
    lens = calibrated(found)
    assert lens.left_out == (7,)
    assert lens.misfit_px < 0.2


@pytest.mark.parametrize(
    ("places", "values", "sentence"),
    [
        (poses(8), {}, "8 different views of the board were found, and a calibration needs at least 10"),
        ([held(0, 0, 0.5, 0.5 * np.cos(k), 0.5 * np.sin(k), 0) for k in range(12)], {}, "the views cover 2"),
        (poses(20, tilt=0.0), {}, "only 0 of 20 views are tilted by more than 15 degrees"),
        (poses(20), {"bend_m": 0.004}, "the board is not flat: it bends by 1.9 mm (limit 1)"),
        (poses(20), {"bend_m": -0.004}, "the board is not flat"),
        (poses(20), {"noise_px": 1.5}, "the views fit one lens to 1.9"),
    ],
)
def test_views_that_do_not_tell_the_lens_are_refused(places, values, sentence):
    assert sentence in refused(views(places, **values))


def test_a_slight_bend_is_accepted():
    assert calibrated(views(poses(20), bend_m=0.0008)).bend_m < 0.001


def test_views_of_two_lenses_are_refused():
    zoomed = LENS.model_copy(update={"matrix": ((800.0, 0.0, 326.0), (0.0, 800.0, 236.0), (0.0, 0.0, 1.0))})
    assert "the views fit one lens to" in refused(views(poses(12)) + views(poses(12, 3), camera=zoomed))


def test_views_are_taken_at_rest_and_once():
    collector, rng = ViewCollector(LENS.width, LENS.height), np.random.default_rng(0)
    here, there = held(-0.05, 0.0, 0.5, 0.4, 0.0, 0.0), held(0.05, 0.03, 0.5, -0.4, 0.0, 0.0)
    assert not collector.offer(seen(here, rng=rng))  # it may still move
    assert collector.offer(seen(here, rng=rng))
    assert not collector.offer(seen(here, rng=rng))  # nothing new
    assert not collector.offer(None)
    assert not collector.offer(seen(there, rng=rng))
    assert collector.offer(seen(there, rng=rng))
    assert (len(collector.views), collector.tilted) == (2, 2)
    assert collector.coverage == coverage(collector.views, LENS.width, LENS.height) < 0.6


def test_a_collector_asks_for_what_is_missing_until_there_is_enough():
    collector = ViewCollector(LENS.width, LENS.height)
    assert "at the top left of the picture" in collector.advice()
    for pose in poses(40, tilt=0.05):
        collector.offer(seen(pose), moves=False)
    assert "tilt the board by about 30 degrees" in collector.advice()
    assert not collector.is_enough
    for pose in poses(40, 5):
        collector.offer(seen(pose), moves=False)
    assert collector.is_enough
