import numpy as np
import pytest

from td3robot.errors import ContractError
from td3robot.layout import Field, Layout

Q = Field("q", ("shoulder", "elbow"), "rad", "arm")
GRIPPER = Field("driver_q", ("right", "left"), "rad", "gripper")
GOAL = Field("goal", ("x", "y", "z"), "m", "task")
LAYOUT = Layout([Q, GRIPPER, GOAL])
VALUES = {"goal": [5.0, 6.0, 7.0], "driver_q": (3.0, 4.0), "q": np.array([1.0, 2.0])}


def test_pack_lays_fields_in_order_whatever_the_order_of_values():
    vector = LAYOUT.pack(VALUES)
    np.testing.assert_array_equal(vector, [1, 2, 3, 4, 5, 6, 7])
    assert vector.dtype == np.float32
    assert LAYOUT.size == 7


def test_pack_ignores_no_missing_field():
    with pytest.raises(KeyError, match="goal"):
        LAYOUT.pack({"q": [1, 2], "driver_q": [3, 4]})


@pytest.mark.parametrize("goal", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0], 1.0], ids=str)
def test_pack_refuses_a_value_of_the_wrong_length(goal):
    with pytest.raises(ValueError):
        LAYOUT.pack(VALUES | {"goal": goal})


def test_unpack_undoes_pack():
    for name, value in LAYOUT.unpack(LAYOUT.pack(VALUES)).items():
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
