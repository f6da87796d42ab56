"""The script that draws responses: what it measures is what the cell models say."""

import numpy as np
import pytest
import responses

from td3robot.simulators.presets import NOMINAL, CameraModel, CellModel, GripperTiming, Preset, ServoModel


@pytest.fixture(scope="module")
def plain():
    return responses.of_simulation("off", 0)


def figure(name, found):
    return next(pick(found) for title, (_, pick) in responses.FIGURES.items() if title.startswith(name))


def test_the_nominal_cell_answers_as_training_does_but_for_a_servoj_of_8_ms(plain):
    nominal = responses.of_standin(NOMINAL)
    for name in ("step", "ramp"):
        times, way = nominal.joint[name]
        training = np.interp(times - 0.008, *plain.joint[name])
        np.testing.assert_allclose(way[50:], training[50:], atol=1.5e-3)
    assert figure("ramp", nominal) - figure("ramp", plain) == pytest.approx(8.0, abs=1.0)
    assert figure("95 % closed", nominal) == pytest.approx(figure("95 % closed", plain), abs=15.0)
    assert figure("pose age", plain) == 0.0
    assert figure("oldest", nominal) == pytest.approx(16.7, abs=2.0)


# The damping ratio of servoj with its gain of 300 and its lookahead time of 0.1 s.
LAW_DAMPING = np.sqrt(300.0) * 0.1 / 2.0


@pytest.mark.slow  # each trait has a law of its own in test_cell_model.py
def test_a_cells_traits_are_found_again(plain):
    cell = Preset(
        "test",
        "a cell of round numbers",
        CellModel(
            servo=ServoModel(damping=(0.5 / LAW_DAMPING,) * 6, transport_s=0.02),
            gripper=GripperTiming(latency_s=0.1, fastest=0.5),
            camera=CameraModel(rate_hz=50.0, latency_s=0.1),
        ),
        stream_hz=500,
    )
    found = responses.of_standin(cell)
    # Trails by the lookahead, the transport and the two milliseconds of a servoj.
    assert figure("ramp", found) == pytest.approx(122.0, abs=3.0)
    assert figure("overshoot", found) == pytest.approx(16.3, abs=1.5), "exp(-pi z / sqrt(1 - z^2))"
    assert figure("closing", found) - figure("closing", plain) > 95.0
    assert figure("pose age", found) == pytest.approx(110.0, abs=3.0)
    assert "| test | " in responses.table(plain, [plain], {"test": found})


@pytest.mark.slow  # see tests/robots/test_disturbed.py
def test_an_episode_of_real_is_drawn_by_its_seed():
    first, again, other = (responses.of_simulation("real", seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.joint["step"][1], again.joint["step"][1])
    assert figure("95 % closed", first) != figure("95 % closed", other)


def test_a_level_that_is_never_reached_is_no_number():
    reading = (np.array([0.1, 0.2]), np.array([0.5, 0.7]))
    assert responses.reached(reading, 0.6) == pytest.approx(0.15)
    assert np.isnan(responses.reached(reading, 0.9))
