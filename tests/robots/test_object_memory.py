"""Objects that nobody sees stay, or move with the hand that holds them."""

import numpy as np
import pytest

from td3robot.errors import TrackerError
from td3robot.geometry import about_vertical
from td3robot.robots.object_memory import ACROSS_M, ALONG_M, MAY_HIDE_M, ObjectMemory
from td3robot.robots.objects import Objects, Sighting
from td3robot.state import Pose

PERIOD_S = 0.05
REST = 2  # periods that fingers rest before they are said to hold something


class Seen(Objects):
    """Shows what it is told to; complains when asked whether that is recent."""

    def __init__(self, position):
        self.show(position)
        self.number = 1

    def show(self, position, age_s=0.0):
        self.sighting = Pose(np.array(position, float), np.eye(3)), age_s
        self.number = getattr(self, "number", 0) + 1

    def arrange(self, poses):
        return poses

    def read(self):
        pose, age = self.sighting
        return {"object": Sighting(pose, age, self.number)}

    def require_recent(self, name):
        raise TrackerError(f"{name} silent")


def tool(position, angle=0.0):
    return Pose(np.array(position, float), about_vertical(angle))


@pytest.fixture
def seen():
    return Seen([0.1, 0.5, 0.02])


@pytest.fixture
def memory(seen):
    made = ObjectMemory(seen, PERIOD_S, REST)
    made.look(tool([0.1, 0.5, 0.03]), None)
    return made


def test_what_is_seen_anew_is_believed_and_its_age_told(seen, memory):
    seen.show([0.2, 0.4, 0.02], age_s=0.12)
    memory.look(tool([0.1, 0.5, 0.03]), None)
    np.testing.assert_array_equal(memory.poses["object"].position, [0.2, 0.4, 0.02])
    assert memory.ages_s["object"] == 0.12


def test_time_unseen_counts_at_the_arm_s_pace(seen):
    slow = ObjectMemory(seen, PERIOD_S, REST, 0.1)
    seen.show([0.2, 0.4, 0.02], age_s=5.0)
    slow.look(tool([0.1, 0.5, 0.03]), None)
    assert slow.ages_s["object"] == 0.5


def test_a_pause_is_no_time_unseen_until_the_next_sighting(seen, memory):
    seen.show([0.2, 0.4, 0.02], age_s=0.5)
    memory.look(tool([0.1, 0.5, 0.03]), None)
    seen.sighting = seen.sighting[0], 60.6
    memory.pause(60.0)
    memory.look(tool([0.1, 0.5, 0.03]), None)
    assert memory.ages_s["object"] == pytest.approx(0.6)
    seen.show([0.2, 0.4, 0.02], age_s=0.2)
    memory.look(tool([0.1, 0.5, 0.03]), None)
    assert memory.ages_s["object"] == 0.2


def test_what_nobody_holds_stays_where_it_was_seen_as_long_as_the_hand_may_hide_it(memory):
    for _ in range(40):
        memory.look(tool([0.1, 0.5, 0.1]), None)
    np.testing.assert_array_equal(memory.poses["object"].position, [0.1, 0.5, 0.02])
    with pytest.raises(TrackerError, match="silent"):
        memory.look(tool([0.1, 0.5, 0.021 + MAY_HIDE_M]), None)


def test_what_is_held_moves_and_turns_with_the_tool_unseen(memory):
    memory.look(tool([0.1, 0.5, 0.03]), "object")
    memory.look(tool([0.1, 0.5, 0.13]), "object")
    memory.look(tool([0.3, 0.5, 0.53], np.pi / 2), "object")
    np.testing.assert_allclose(memory.poses["object"].position, [0.3, 0.5, 0.52], atol=1e-12)
    np.testing.assert_allclose(memory.poses["object"].rotation, about_vertical(np.pi / 2), atol=1e-12)


def test_what_rose_with_the_tool_before_its_grip_was_told_is_where_the_fingers_closed_on_it(memory):
    for height in (0.03, 0.04, 0.06):  # the fingers rest from the first of these on
        memory.look(tool([0.1, 0.5, height]), "object" if height == 0.06 else None)
    np.testing.assert_allclose(memory.poses["object"].position, [0.1, 0.5, 0.05], atol=1e-12)


def test_what_the_fingers_dragged_unseen_is_in_the_hand(memory):
    for x in (0.1, 0.15, 0.2, 0.2, 0.2):
        memory.look(tool([x, 0.5, 0.03], 0.7), None)
    memory.look(tool([0.2, 0.5, 0.03], 0.7), "object")
    np.testing.assert_allclose(memory.poses["object"].position, [0.2 - ACROSS_M, 0.5, 0.02], atol=1e-12)
    memory.look(tool([0.2, 0.5, 0.13], 0.7), "object")
    np.testing.assert_allclose(memory.poses["object"].position, [0.2 - ACROSS_M, 0.5, 0.12], atol=1e-12)


def test_what_is_gripped_is_no_further_below_the_tool_than_fingers_reach(memory):
    for _ in range(1 + REST):
        memory.look(tool([0.1, 0.5, 0.1]), None)
    memory.look(tool([0.1, 0.5, 0.1]), "object")
    np.testing.assert_allclose(memory.poses["object"].position, [0.1, 0.5, 0.1 - ALONG_M], atol=1e-12)


def test_a_camera_s_noise_does_not_move_what_is_held(seen, memory):
    rng = np.random.default_rng(0)
    for _ in range(30):
        seen.show(rng.normal([0.1, 0.5, 0.02], 0.003))
        memory.look(tool([0.1, 0.5, 0.03]), "object")
    first = memory.poses["object"].position
    seen.show([0.11, 0.5, 0.02])
    memory.look(tool([0.1, 0.5, 0.03]), "object")
    np.testing.assert_array_equal(memory.poses["object"].position, first)


def lift(seen, memory, periods, shows):
    """Lift by 10 mm a period, and show something each time; give the height that is believed."""
    for count in range(1, periods + 1):
        seen.show(*shows(count))
        memory.look(tool([0.1, 0.5, 0.03 + 0.01 * count]), "object")
    return memory.poses["object"].position[2]


def test_a_late_camera_does_not_take_a_held_object_out_of_the_hand(seen, memory):
    late = 3  # periods
    height = lift(seen, memory, 12, lambda count: ([0.1, 0.5, 0.02 + 0.01 * max(count - late, 0)], late * PERIOD_S))
    assert height == pytest.approx(0.14)


def test_an_object_that_is_seen_lying_is_not_in_the_hand_whatever_the_fingers_say(seen, memory):
    assert lift(seen, memory, 12, lambda count: ([0.1, 0.5, 0.02], 0.05)) < 0.08


def test_a_frame_from_before_the_grip_says_nothing_about_the_hand(seen, memory):
    assert lift(seen, memory, 8, lambda count: ([0.1, 0.5, 0.02], 10.0)) == pytest.approx(0.1)


def test_nothing_is_remembered_from_the_episode_before(seen, memory):
    memory.look(tool([0.1, 0.5, 0.03]), "object")
    memory.forget()
    seen.show([0.3, 0.3, 0.02])
    memory.look(tool([0.6, 0.6, 0.6]), "object")
    np.testing.assert_array_equal(memory.poses["object"].position, [0.3, 0.3, 0.02])
