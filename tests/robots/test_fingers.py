"""A gripper's motor: one speed, a delay, and back from where the fingers are."""

import pytest

from td3robot.robots.simulated.robot import Fingers


def test_it_goes_at_its_rate_and_no_further_than_asked():
    fingers = Fingers(2.0)
    fingers.go_to(0.25)
    found = [fingers.advance(0.05, fingers.fraction) for _ in range(4)]
    assert found == pytest.approx([0.1, 0.2, 0.25, 0.25])


def test_a_delay_ends_within_a_period():
    fingers = Fingers(2.0)
    fingers.delay_s = 0.07
    fingers.go_to(1.0)
    assert fingers.advance(0.05, 0.0) == 0.0
    assert fingers.advance(0.05, 0.0) == pytest.approx(2.0 * 0.03)


def test_positions_that_come_while_others_are_on_their_way_are_done_in_their_order():
    fingers = Fingers(1.0)
    fingers.delay_s = 0.1
    fingers.go_to(1.0)
    fingers.advance(0.05, 0.0)
    fingers.go_to(0.0)
    found = [fingers.advance(0.05, fingers.fraction) for _ in range(4)]
    assert found == pytest.approx([0.0, 0.05, 0.0, 0.0])


def test_asking_for_the_same_again_is_no_new_position():
    fingers = Fingers(1.0)
    fingers.delay_s = 0.1
    for _ in range(4):
        fingers.go_to(1.0)
        fingers.advance(0.05, fingers.fraction)
    assert fingers.fraction == pytest.approx(0.1)


def test_it_lets_go_at_once_of_what_it_squeezed():
    fingers = Fingers(2.0)
    fingers.go_to(1.0)
    for _ in range(20):
        fingers.advance(0.05, min(fingers.fraction, 0.5))
    assert fingers.fraction == 1.0
    fingers.go_to(0.0)
    assert fingers.advance(0.05, 0.5) == pytest.approx(0.4)
