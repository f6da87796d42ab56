"""Child processes and their messages."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from td3robot.processes import (
    Channel,
    ChannelClosedError,
    ChildProcess,
    end_process,
    give_way,
    raise_priority,
    start_python,
)


def echo(parent):
    """Answer every message with itself."""
    parent.say("echoing")
    while (message := parent.next()) is not None:
        parent.answer(message)


def fail(parent):
    """Fail as a program does."""
    raise ValueError(f"told {parent.next()}")


def hang(parent):
    """Never look at the parent again."""
    parent.answer(os.getpid())
    time.sleep(600)


def is_running(pid):
    """Whether there is such a process, and it is not one whose status only waits to be read."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


HERE = str(Path(__file__).parent)
PARENT = """
import sys, time
sys.path[:0] = {path!r}
from test_processes import ChildProcess, hang
child = ChildProcess(hang)
print(child.channel.receive(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    for function in (echo, fail, hang):
        monkeypatch.setattr(function, "__module__", "test_processes")


def test_messages_arrive_whole_and_in_order_and_an_end_is_noticed():
    mine, socket = Channel.pair()
    other = Channel(socket)
    assert not mine.poll()
    other.send({"order": "one", "values": (1.5, "ü")})
    other.send(None)
    other.close()
    assert mine.poll()
    assert mine.receive() == {"order": "one", "values": (1.5, "ü")}
    assert mine.receive() is None
    assert mine.poll()
    with pytest.raises(ChannelClosedError):
        mine.receive()
    with pytest.raises(ChannelClosedError):
        mine.send("three")


def test_a_message_cut_off_is_an_end():
    mine, socket = Channel.pair()
    socket.sendall(b"\x10" + bytes(10))
    socket.close()
    with pytest.raises(ChannelClosedError):
        mine.receive()


@pytest.mark.parametrize("lean", [False, True])
def test_a_child_answers_and_ends_with_its_channel(lean):
    child = ChildProcess(echo, lean=lean)
    many = np.arange(1_000_000.0)
    child.channel.send(many)
    assert np.array_equal(child.channel.receive(), many)
    assert child.busy_with == "echoing"
    os.kill(child.pid, signal.SIGINT)  # ignored
    child.channel.send("still there")
    assert child.channel.receive() == "still there"
    child.close(10.0)
    assert child.process.returncode == 0
    child.close()


def test_a_child_s_last_words_say_why_it_ended():
    child = ChildProcess(fail, keep_output=True)
    child.channel.send("so")
    with pytest.raises(ChannelClosedError):
        child.channel.receive()
    assert child.process.wait(10.0) == 1
    assert child.ended and child.last_words() == "ValueError: told so"
    child.close()


def test_a_child_that_hangs_is_killed():
    child = ChildProcess(hang)
    assert child.channel.receive() == child.pid
    child.close(0.1)
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_that_hangs_ends_with_its_parent():
    program = PARENT.format(path=[HERE, *sys.path])
    parent = start_python(["-c", program], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)  # only the parent, not its group
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10.0
    while is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_children_of_a_process_end_with_it():
    process = start_python(["-c", "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"],
                           stdout=subprocess.PIPE)  # fmt: skip
    sleeper = int(process.stdout.readline())
    assert end_process(process, 10.0) == 0
    process.stdout.close()
    time.sleep(0.1)
    assert not is_running(sleeper)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_a_child_runs_where_the_temporary_directory_is_full(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    child = ChildProcess(echo, keep_output=True)
    try:
        child.channel.send(1)
        assert child.channel.receive() == 1
        assert child.busy_with == "echoing"
    finally:
        child.close(5.0)


def report_priorities(parent):
    """Give way, and say which real-time priority this process had and has."""
    had = os.sched_getparam(0).sched_priority
    give_way()
    parent.answer((had, os.sched_getparam(0).sched_priority))


def test_a_process_that_gives_way_has_no_real_time_priority_of_its_parent():
    if not raise_priority(2, inherited=True):
        pytest.skip("no real-time priority is granted here")
    try:
        child = ChildProcess(report_priorities)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        assert child.channel.receive() == (2, 0)
    finally:
        child.close()
