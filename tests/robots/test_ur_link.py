import os
import subprocess
import sys

import pytest

from td3robot.robots.ur.shared_memory import (
    Channel,
    ChannelClosedError,
    SharedMemory,
    Status,
    Target,
    WorkerState,
    quantiles_ms,
)


def test_what_is_written_is_read():
    memory, descriptor = SharedMemory.create()
    other = SharedMemory(os.dup(descriptor))
    assert other.state.read() == WorkerState()
    state = WorkerState(1.5, 2.5, 3.5, (1.0,) * 6, (2.0,) * 6, (3.0,) * 6, 0.5, 0.25, 1, 7, 2, 1, Status.STREAMING, 9)
    memory.state.write(state)
    target = Target(1.0, 2.0, 3, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    other.target.write(target)
    assert (other.state.read(), memory.target.read()) == (state, target)


WRITER = """
import sys, time
from td3robot.robots.ur.shared_memory import SharedMemory, Target
memory, end, count = SharedMemory(int(sys.argv[1])), time.monotonic() + 1.0, 0
while time.monotonic() < end:
    count += 1
    memory.target.write(Target(float(count), float(count), count, (float(count),) * 6))
"""


def test_no_value_is_ever_read_half_written():
    memory, descriptor = SharedMemory.create()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(descriptor)], pass_fds=(descriptor,))
    seen = set()
    while writer.poll() is None:
        target = memory.target.read()
        assert {target.beat, target.sent_at, float(target.count), *target.q} == {float(target.count)}
        seen.add(target.count)
    assert writer.returncode == 0
    assert len(seen) > 10


def test_damaged_memory_is_a_fault():
    memory, _ = SharedMemory.create()
    for position in (20, 280):
        memory._memory[position] ^= 0xFF
    with pytest.raises(OSError, match="holds no whole value"):
        memory.state.read()


def test_messages_arrive_whole_and_in_order_and_an_end_is_noticed():
    mine, socket = Channel.pair()
    other = Channel(socket)
    assert mine.receive() is None
    other.send(order="one", values=[1.5, "ü"])
    other.send(order="two")
    other.close()
    assert mine.receive() == {"order": "one", "values": [1.5, "ü"]}
    assert mine.receive() == {"order": "two"}
    with pytest.raises(ChannelClosedError):
        mine.receive()
    with pytest.raises(ChannelClosedError):
        mine.send(order="three")
        mine.send(order="four")


def test_quantiles():
    assert quantiles_ms("x", []) == {}
    assert quantiles_ms("x", [k / 1000 for k in range(1, 101)]) == {
        "x_p50_ms": pytest.approx(51),
        "x_p99_ms": pytest.approx(100),
        "x_max_ms": pytest.approx(100),
    }
