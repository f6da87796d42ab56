import os
import subprocess
import sys
from dataclasses import replace

import pytest

from td3robot.robots.driver.link import quantiles_ms
from td3robot.robots.driver.shared_memory import SharedMemory, Status, Target, WorkerState
from td3robot.robots.franka.link import FrankaState
from td3robot.robots.ur.link import UrState

MOVING = {"beat": 1.5, "stamp": 2.5, "controller_time": 3.5, "status": Status.STREAMING, "orders": 9}


@pytest.mark.parametrize(
    ("first", "own"),
    [
        (
            UrState(),
            {"speed_scaling": 0.5, "speed_slider": 0.25, "safety_mode": 1, "robot_mode": 7, "runtime_state": 2},
        ),
        (FrankaState(), {"q_d": (4.0,) * 7, "success_rate": 0.5, "moving": 1, "width": 0.03, "grasped": 1}),
        (WorkerState(q=(0.0,), dq=(0.0,), target=(0.0,)), {}),
    ],
)
def test_what_is_written_is_read(first, own):
    joints = len(first.q)
    memory, descriptor = SharedMemory.create(first)
    other = SharedMemory(os.dup(descriptor), first)
    assert other.state.read() == first
    state = replace(first, **MOVING, q=(1.0,) * joints, dq=(2.0,) * joints, target=(3.0,) * joints, **own)
    memory.state.write(state)
    target = Target(1.0, 2.0, 3, tuple(float(joint) for joint in range(joints)), 0.75)
    other.target.write(target)
    assert (other.state.read(), memory.target.read()) == (state, target)


WRITER = """
import sys, time
from td3robot.robots.driver.shared_memory import SharedMemory, Target
from td3robot.robots.ur.link import UrState
memory, end, count = SharedMemory(int(sys.argv[1]), UrState()), time.monotonic() + 1.0, 0
while time.monotonic() < end:
    count += 1
    memory.target.write(Target(float(count), float(count), count, (float(count),) * 6))
"""


def test_no_value_is_ever_read_half_written():
    memory, descriptor = SharedMemory.create(UrState())
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(descriptor)], pass_fds=(descriptor,))
    seen = set()
    while writer.poll() is None:
        target = memory.target.read()
        assert {target.beat, target.sent_at, float(target.count), *target.q} == {float(target.count)}
        seen.add(target.count)
    assert writer.returncode == 0
    assert len(seen) > 10


def test_damaged_memory_is_a_fault():
    memory, _ = SharedMemory.create(UrState())
    for position in (20, 20 + memory.state._copy):  # in both copies
        memory.state._memory[position] ^= 0xFF
    with pytest.raises(OSError, match="holds no whole value"):
        memory.state.read()


def test_quantiles():
    assert quantiles_ms("x", []) == {}
    assert quantiles_ms("x", [k / 1000 for k in range(1, 101)]) == {
        "x_p50_ms": pytest.approx(51),
        "x_p99_ms": pytest.approx(100),
        "x_max_ms": pytest.approx(100),
    }
