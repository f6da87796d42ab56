import numpy as np
import pytest

from td3robot.errors import ContractError, EnvironmentFaultError
from td3robot.layout import Field, Layout

Q = Field("q", ("shoulder", "elbow"), "rad", "arm")
GRIPPER = Field("driver_q", ("right", "left"), "rad", "gripper")
GOAL = Field("goal", ("x", "y", "z"), "m", "task")
LAYOUT = Layout([Q, GRIPPER, GOAL])
VALUES = {
    "goal": np.array([[5.0, 6.0, 7.0], [12.0, 13.0, 14.0]]),
    "driver_q": np.array([[3.0, 4.0], [10.0, 11.0]]),
    "q": np.array([[1.0, 2.0], [8.0, 9.0]]),
}


def test_pack_lays_fields_in_order_whatever_the_order_of_values():
    vectors = LAYOUT.pack(VALUES, 2)
    np.testing.assert_array_equal(vectors, np.arange(1, 15).reshape(2, 7))
    assert vectors.dtype == np.float32
    assert LAYOUT.size == 7


def test_a_field_of_one_number_is_a_number_a_row():
    layout = Layout([Q, Field("held", ("held",), "1", "task")])
    for held in (np.array([0.0, 1.0]), np.array([[0.0], [1.0]])):
        np.testing.assert_array_equal(layout.pack({"q": VALUES["q"], "held": held}, 2), [[1, 2, 0], [8, 9, 1]])


def test_pack_ignores_no_missing_field_and_no_unknown_one():
    with pytest.raises(EnvironmentFaultError, match=r"does not write \['goal'\]"):
        LAYOUT.pack({"q": VALUES["q"], "driver_q": VALUES["driver_q"]}, 2)
    with pytest.raises(EnvironmentFaultError, match=r"writes \['fog'\], which it lacks"):
        LAYOUT.pack(VALUES | {"fog": np.zeros(2)}, 2)


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (2, 1), (2,), (3,), (1, 3), (3, 3)], ids=str)
def test_pack_refuses_a_value_of_the_wrong_shape(shape):
    with pytest.raises(
        EnvironmentFaultError, match=r"'goal' has 3 numbers in each of 2 rows, and observe\(\) returned"
    ):
        LAYOUT.pack(VALUES | {"goal": np.zeros(shape)}, 2)


def test_unpack_undoes_pack():
    for name, value in LAYOUT.unpack(LAYOUT.pack(VALUES, 2)).items():
        np.testing.assert_array_equal(value, VALUES[name])


def test_unpack_splits_batches_without_copying():
    batch = np.arange(14.0).reshape(2, 7)
    parts = LAYOUT.unpack(batch)
    assert {name: part.shape for name, part in parts.items()} == {"q": (2, 2), "driver_q": (2, 2), "goal": (2, 3)}
    parts["goal"][1, 0] = -1.0
    assert batch[1, 4] == -1.0


def test_every_number_has_a_name():
    names = [LAYOUT.component(index) for index in range(LAYOUT.size)]
    assert names == [
        "q.shoulder", "q.elbow", "driver_q.right", "driver_q.left", "goal.x", "goal.y", "goal.z",
    ]  # fmt: skip
    for outside in (-1, 7):
        with pytest.raises(IndexError, match=f"index {outside} is outside a layout of size 7"):
            LAYOUT.component(outside)


def test_a_name_is_used_once():
    with pytest.raises(ValueError, match=r"names a field twice.*'q'"):
        Layout([Q, GOAL, Q])


def test_only_the_simulator_is_missing_on_hardware():
    assert all(field.on_hardware for field in LAYOUT.fields)
    assert not Field("contact", ("force",), "1", "simulator").on_hardware


def test_a_layout_survives_json():
    LAYOUT.require_same(Layout.from_json(LAYOUT.to_json()), "observation")


def test_require_same_accepts_an_equal_layout():
    LAYOUT.require_same(Layout([Q, GRIPPER, GOAL]), "observation")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            [Q, Field("driver_q", ("left", "right"), "rad", "gripper"), GOAL],
            "observation field 1 differs: 'driver_q' (right, left; rad, from gripper) here, "
            "'driver_q' (left, right; rad, from gripper) there; "
            "use a checkpoint of the same robot, task and action kind",
        ),
        (
            [Q, GRIPPER],
            "observation field 2 differs: 'goal' (x, y, z; m, from task) here, nothing there; "
            "use a checkpoint of the same robot, task and action kind",
        ),
        (
            [Q, GRIPPER, GOAL, Field("speed", ("v",), "m/s", "arm")],
            "observation field 3 differs: nothing here, 'speed' (v; m/s, from arm) there; "
            "use a checkpoint of the same robot, task and action kind",
        ),
    ],
    ids=["swapped", "shorter", "longer"],
)
def test_require_same_names_the_first_difference(other, message):
    with pytest.raises(ContractError) as error:
        LAYOUT.require_same(Layout(other), "observation")
    assert str(error.value) == message


def test_fields_in_another_order_are_another_layout():
    with pytest.raises(ContractError, match=r"field 0 differs: 'q' .* here, 'driver_q' .* there"):
        LAYOUT.require_same(Layout([GRIPPER, Q, GOAL]), "action")
