"""Objects that nobody sees stay, or move with the hand that holds them."""

from dataclasses import replace

import numpy as np
import pytest

from td3robot.errors import TrackerError
from td3robot.geometry import about_vertical, rotation_matrix
from td3robot.robots.object_memory import ACROSS_M, ALONG_M, MAY_HIDE_M, ObjectMemory
from td3robot.robots.objects import ObjectBounds, Objects, Sighting
from td3robot.state import Pose

FIRST = np.array([0])
NAMES = ("object",)
PERIOD_S = 0.05
REST = 2  # periods that fingers rest before they are said to hold something


class Seen(Objects):
    """Shows what it is told to; complains when asked whether that is recent."""

    refused = False

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
        return {"object": Sighting(pose, age, self.number, self.refused)}

    def require_recent(self, name):
        raise TrackerError(f"{name} silent")


def look(memory, tool, held=False, angle=0.0):
    """Look once with the tool at a position and turned by an angle, the object in its fingers or not."""
    memory.look(np.array([tool], float), about_vertical(angle)[None], np.array([0 if held else -1]), FIRST)


@pytest.fixture
def seen():
    return Seen([0.1, 0.5, 0.02])


@pytest.fixture
def memory(seen):
    made = ObjectMemory([seen], NAMES, PERIOD_S, REST)
    look(made, [0.1, 0.5, 0.03])
    return made


def test_what_is_seen_anew_is_believed_and_its_age_told(seen, memory):
    seen.show([0.11, 0.49, 0.02], age_s=0.12)
    look(memory, [0.1, 0.5, 0.03])
    np.testing.assert_array_equal(memory.position[0, 0], [0.11, 0.49, 0.02])
    assert memory.age_s[0, 0] == 0.12


def test_time_unseen_counts_at_the_arm_s_pace(seen):
    slow = ObjectMemory([seen], NAMES, PERIOD_S, REST, 0.1)
    seen.show([0.2, 0.4, 0.02], age_s=5.0)
    look(slow, [0.1, 0.5, 0.03])
    assert slow.age_s[0, 0] == 0.5


def test_a_pause_is_no_time_unseen_until_the_next_sighting(seen, memory):
    seen.show([0.11, 0.5, 0.02], age_s=0.5)
    look(memory, [0.1, 0.5, 0.03])
    seen.sighting = seen.sighting[0], 60.6
    memory.pause(60.0)
    look(memory, [0.1, 0.5, 0.03])
    assert memory.age_s[0, 0] == pytest.approx(0.6)
    seen.show([0.12, 0.5, 0.02], age_s=0.2)
    look(memory, [0.1, 0.5, 0.03])
    assert memory.age_s[0, 0] == 0.2


def test_what_nobody_holds_stays_where_it_was_seen_as_long_as_the_hand_may_hide_it(memory):
    for _ in range(40):
        look(memory, [0.1, 0.5, 0.1])
    np.testing.assert_array_equal(memory.position[0, 0], [0.1, 0.5, 0.02])
    with pytest.raises(TrackerError, match="silent"):
        look(memory, [0.1, 0.5, 0.021 + MAY_HIDE_M])


def test_what_is_held_moves_and_turns_with_the_tool_unseen(memory):
    look(memory, [0.1, 0.5, 0.03], True)
    look(memory, [0.1, 0.5, 0.13], True)
    look(memory, [0.3, 0.5, 0.53], True, angle=np.pi / 2)
    np.testing.assert_allclose(memory.position[0, 0], [0.3, 0.5, 0.52], atol=1e-12)
    np.testing.assert_allclose(memory.rotation[0, 0], about_vertical(np.pi / 2), atol=1e-12)


def test_what_rose_with_the_tool_before_its_grip_was_told_is_where_the_fingers_closed_on_it(memory):
    for height in (0.03, 0.04, 0.06):  # the fingers rest from the first of these on
        look(memory, [0.1, 0.5, height], height == 0.06)
    np.testing.assert_allclose(memory.position[0, 0], [0.1, 0.5, 0.05], atol=1e-12)


def test_what_the_fingers_dragged_unseen_is_in_the_hand(memory):
    for x in (0.1, 0.15, 0.2, 0.2, 0.2):
        look(memory, [x, 0.5, 0.03], angle=0.7)
    look(memory, [0.2, 0.5, 0.03], True, angle=0.7)
    np.testing.assert_allclose(memory.position[0, 0], [0.2 - ACROSS_M, 0.5, 0.02], atol=1e-12)
    look(memory, [0.2, 0.5, 0.13], True, angle=0.7)
    np.testing.assert_allclose(memory.position[0, 0], [0.2 - ACROSS_M, 0.5, 0.12], atol=1e-12)


def test_what_is_gripped_is_no_further_below_the_tool_than_fingers_reach(memory):
    for _ in range(1 + REST):
        look(memory, [0.1, 0.5, 0.1])
    look(memory, [0.1, 0.5, 0.1], True)
    np.testing.assert_allclose(memory.position[0, 0], [0.1, 0.5, 0.1 - ALONG_M], atol=1e-12)


def test_a_camera_s_noise_does_not_move_what_is_held(seen, memory):
    rng = np.random.default_rng(0)
    for _ in range(30):
        seen.show(rng.normal([0.1, 0.5, 0.02], 0.003))
        look(memory, [0.1, 0.5, 0.03], True)
    first = memory.position[0, 0].copy()
    seen.show([0.11, 0.5, 0.02])
    look(memory, [0.1, 0.5, 0.03], True)
    np.testing.assert_array_equal(memory.position[0, 0], first)


def lift(seen, memory, periods, shows):
    """Lift by 10 mm a period, and show something each time; give the height that is believed."""
    for count in range(1, periods + 1):
        seen.show(*shows(count))
        look(memory, [0.1, 0.5, 0.03 + 0.01 * count], True)
    return memory.position[0, 0][2]


def test_a_late_camera_does_not_take_a_held_object_out_of_the_hand(seen, memory):
    late = 3  # periods
    height = lift(seen, memory, 12, lambda count: ([0.1, 0.5, 0.02 + 0.01 * max(count - late, 0)], late * PERIOD_S))
    assert height == pytest.approx(0.14)


def test_an_object_that_is_seen_lying_is_not_in_the_hand_whatever_the_fingers_say(seen, memory):
    assert lift(seen, memory, 14, lambda count: ([0.1, 0.5, 0.02], 0.05)) == pytest.approx(0.16)
    assert lift(seen, memory, 40, lambda count: ([0.1, 0.5, 0.02], 0.05)) == pytest.approx(0.02)


def test_a_frame_from_before_the_grip_says_nothing_about_the_hand(seen, memory):
    assert lift(seen, memory, 8, lambda count: ([0.1, 0.5, 0.02], 10.0)) == pytest.approx(0.1)


FAR = [0.6, 0.2, 0.6]  # a tool that has nothing to do with the object


def played(seen, memory, shows, tool=FAR):
    """Show one position a period, or nothing for None; give the x that is believed after each."""
    believed = []
    for x in shows:
        if x is not None:
            seen.show([x, 0.5, 0.02], age_s=0.05)
        look(memory, tool)
        believed.append(memory.position[0, 0, 0])
    return believed


def test_a_lone_odd_frame_is_passed_over_and_ages_what_is_known(seen, memory):
    assert played(seen, memory, [0.1, 0.15, 0.1, 0.1]) == [0.1] * 4
    played(seen, memory, [0.2])
    assert memory.age_s[0, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("away", [0.045, 0.2, 0.5])
def test_a_look_alike_is_not_taken_for_the_object_within_0_3_s(seen, memory, away):
    assert played(seen, memory, [0.1 + away] * 6 + [0.1] * 3) == [0.1] * 9


def test_an_object_that_was_nudged_is_believed_once_it_was_seen_there_for_long_enough(seen, memory):
    believed = played(seen, memory, [0.145] * 12)
    assert 6 <= believed.index(0.145) <= 8


def test_frames_that_disagree_with_each_other_are_never_believed(seen, memory):
    assert played(seen, memory, [0.2, 0.4] * 20) == [0.1] * 40


def test_an_object_that_somebody_carries_is_followed(seen, memory):
    way = [0.1 + 0.01 * step for step in range(30)]
    assert played(seen, memory, way) == way


def test_the_hand_may_have_pushed_what_it_is_near_to(seen, memory):
    for x in np.linspace(0.1, 0.16, 5):  # unseen
        look(memory, [x, 0.5, 0.03])
    assert played(seen, memory, [0.16], [0.16, 0.5, 0.03]) == [0.16]


def test_a_cube_carried_through_a_silence_is_seen_where_the_tool_carried_it(seen, memory):
    lift(seen, memory, 4, lambda count: ([0.1, 0.5, 0.02 + 0.01 * count], 0.0))
    for count in range(5, 13):
        look(memory, [0.1, 0.5, 0.03 + 0.01 * count], True)
    seen.show([0.1, 0.5, 0.15])
    look(memory, [0.1, 0.5, 0.16], True)
    assert memory.position[0, 0][2] == pytest.approx(0.15, abs=0.015) and memory.age_s[0, 0] == 0.0


def leaning(angle):
    return Pose(np.array([0.1, 0.5, 0.02]), rotation_matrix([angle, 0.0, 0.0]))


def test_a_flip_of_a_tag_is_an_odd_frame(seen, memory):
    seen.show([0.1, 0.5, 0.02])
    look(memory, FAR)
    seen.sighting, seen.number = (leaning(0.6), 0.0), seen.number + 1
    look(memory, FAR)
    np.testing.assert_array_equal(memory.rotation[0, 0], np.eye(3))


class Bounded(Seen):
    def require_possible(self, name, pose):
        raise TrackerError(f"{name} astray at {pose.position[0]:g}")


BOUNDS = ObjectBounds(((-0.2, 0.35), (0.2, 0.65)), {"object": 0.02}, ((-0.6, 0.1, 0.0), (0.6, 0.9, 0.8)))


def test_an_object_that_left_the_table_is_told_and_one_odd_picture_of_it_is_not():
    seen = Bounded([0.1, 0.5, 0.02])
    memory = ObjectMemory([seen], NAMES, PERIOD_S, REST, bounds=BOUNDS)
    look(memory, FAR)
    assert played(seen, memory, [0.9, 0.1, 0.1]) == [0.1] * 3
    with pytest.raises(TrackerError, match=r"astray at 0\.9"):
        played(seen, memory, [0.9] * 40)


@pytest.mark.parametrize("is_cube", [True, False])
def test_a_cube_that_rolled_is_a_cube_and_a_box_on_its_side_is_astray(is_cube):
    seen = Bounded([0.1, 0.5, 0.02])
    bounds = replace(BOUNDS, cubes=frozenset(NAMES if is_cube else ()))
    memory = ObjectMemory([seen], NAMES, PERIOD_S, REST, bounds=bounds)
    look(memory, FAR)

    def roll():
        for _ in range(20):
            seen.sighting, seen.number = (leaning(np.pi / 2), 0.0), seen.number + 1
            look(memory, FAR)

    if is_cube:
        roll()
        np.testing.assert_array_equal(memory.rotation[0, 0], leaning(np.pi / 2).rotation)
    else:
        with pytest.raises(TrackerError, match="astray"):
            roll()


def test_a_tracker_that_is_refused_is_not_hidden_by_the_hand(seen, memory):
    look(memory, [0.1, 0.5, 0.03])
    seen.refused = True
    with pytest.raises(TrackerError, match="silent"):
        look(memory, [0.1, 0.5, 0.03])
    look(memory, [0.1, 0.5, 0.03], True)  # the fingers know


def test_nothing_is_remembered_from_the_episode_before(seen, memory):
    look(memory, [0.1, 0.5, 0.03], True)
    memory.forget(0)
    seen.show([0.3, 0.3, 0.02])
    look(memory, [0.6, 0.6, 0.6], True)
    np.testing.assert_array_equal(memory.position[0, 0], [0.3, 0.3, 0.02])


def test_rows_and_objects_keep_to_themselves():
    """What two rows with two objects each remember is what one memory for each would."""
    names, places = ("cube", "bin"), np.random.default_rng(0).uniform(0.1, 0.2, (2, 2, 3))

    class Two(Seen):
        def __init__(self, row):
            self.row, self.number = row, 1

        def read(self):
            poses = (Pose(place + 0.001 * self.number, np.eye(3)) for place in places[self.row])
            return {name: Sighting(pose, 0.01 * self.row, self.number) for name, pose in zip(names, poses, strict=True)}

    sources = [Two(0), Two(1)]
    together = ObjectMemory(sources, names, PERIOD_S, REST)
    alone = [ObjectMemory([source], names, PERIOD_S, REST) for source in sources]
    rng = np.random.default_rng(1)
    for step in range(40):
        rows = np.array([[0, 1], [1, 0], [1], [0]][step % 4])
        tool, held = rng.uniform(0.13, 0.17, (2, 3)), np.array([(step // 8) % 3 - 1, step // 20])
        turn = np.stack([about_vertical(angle) for angle in rng.uniform(-1.0, 1.0, 2)])
        for row in rows:
            sources[row].number += step % 3 == 0
        if step == 17:
            together.forget(1)
            alone[1].forget(0)
            together.pause(0.5, 0)
            alone[0].pause(0.5)
        together.look(tool[rows], turn[rows], held[rows], rows)
        for row in rows:
            alone[row].look(tool[row : row + 1], turn[row : row + 1], held[row : row + 1], FIRST)
        for row, single in enumerate(alone):
            np.testing.assert_array_equal(together.position[row], single.position[0])
            np.testing.assert_array_equal(together.rotation[row], single.rotation[0])
            np.testing.assert_array_equal(together.age_s[row], single.age_s[0])
