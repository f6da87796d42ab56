"""The URCap client, against the stand-in and against sockets that answer as no gripper should."""

import socket
import threading
import time
from contextlib import suppress

import pytest

from td3robot.errors import RobotError
from td3robot.registry import GRIPPERS
from td3robot.robots.cells.ur import GripperConfig
from td3robot.robots.driver.fingers import RESPONSE_S, STILL_S, FingerWatch
from td3robot.robots.ur.connection import LineReader
from td3robot.robots.ur.urcap import MOVED_COUNTS, RobotiqGripper, UrCapSocket

CONFIG, MODEL = GripperConfig(), GRIPPERS["robotiq_2f85"]


class Answers:
    """A socket that answers each request as told, in pieces."""

    def __init__(self, host, answer):
        self._listener = socket.create_server((host, 0))
        self.port, self.requests, self._answer = self._listener.getsockname()[1], [], answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        link, _ = self._listener.accept()
        with link, suppress(OSError):
            while data := link.recv(1024):
                self.requests.append(data)
                for piece in self._answer(data):
                    link.sendall(piece)
                    time.sleep(0.005)

    def close(self):
        self._listener.close()


@pytest.fixture
def ask(another_host):
    opened = []

    def ask(answer):
        server = Answers(another_host, answer)
        link = UrCapSocket(another_host, server.port, 0.2)
        opened.extend([link, server])
        return link, server

    yield ask
    for item in opened:
        item.close()


@pytest.fixture
def gripper(standin):
    standin.reset()
    gripper = RobotiqGripper(standin.host, CONFIG, MODEL)
    gripper.activate()
    gripper.connect()
    yield gripper
    gripper.close()
    gripper.close()


def wait_for(condition, limit_s=3.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("pieces", [[b"POS 23\n"], [b"PO", b"S 2", b"3\n"], [b"POS 23"], [b"POS 23\nextra"]])
def test_answers_arrive_in_any_pieces(ask, pieces):
    link, server = ask(lambda _: pieces)
    assert link.get("POS") == 23
    assert server.requests == [b"GET POS\n"]


@pytest.mark.parametrize("pieces", [[b"ack\n"], [b"ack"], [b"a", b"ck"]])
def test_a_request_is_one_line_that_is_taken_as_a_whole(ask, pieces):
    link, server = ask(lambda _: pieces)
    link.set(POS=120, SPE=255, FOR=50, GTO=1)
    assert server.requests == [b"SET POS 120 SPE 255 FOR 50 GTO 1\n"]


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([b"POS ?\n"], "the controller does not reach the gripper; check its cable and power"),
        ([b"OBJ 3\n"], "answered 'OBJ 3' when asked for POS"),
        ([b"\n"], "answered '' when asked for POS"),
        ([b"POS 1 2\n"], "answered 'POS 1 2' when asked for POS"),
        ([b"POS -1\n"], "no value for POS"),
        ([b"\xff\xfe\n"], "the connection to the gripper"),
        ([], "did not answer 'GET POS' within 0.2 s"),
    ],
)
def test_strange_answers_and_silence_are_faults(ask, pieces, reason):
    link, _ = ask(lambda _: pieces)
    begin = time.monotonic()
    with pytest.raises(RobotError, match=reason):
        link.get("POS")
    assert time.monotonic() - begin < 1.0


def test_a_late_answer_is_not_taken_for_the_next_one(ask):
    def answer(data):
        if data == b"GET POS\n":
            time.sleep(0.3)
        yield data[4:].strip() + (b" 1\n" if b"POS" in data else b" 3\n")

    link, _ = ask(answer)
    with pytest.raises(RobotError, match="did not answer"):
        link.get("POS")
    time.sleep(0.3)
    assert link.get("STA") == 3


def test_an_answer_that_arrived_is_in_time_however_late_it_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"POS 3\n")
        lines = LineReader(ours, 256)
        assert lines.read(0.0) == b"POS 3"
        with pytest.raises(TimeoutError):
            lines.read(0.0)


def test_answers_later_than_a_fifth_of_a_second_are_a_fault(another_host):
    late, done, values = threading.Event(), threading.Event(), {b"STA": b"3", b"FLT": b"0", b"OBJ": b"3", b"POS": b"3"}

    def answer(data):
        if late.is_set():
            done.wait(10.0)
        name = data.split()[1]
        yield name + b" " + values[name] + b"\n"

    server = Answers(another_host, answer)
    gripper = RobotiqGripper(another_host, GripperConfig(port=server.port), MODEL)
    gripper.connect()
    late.set()
    wait_for(lambda: gripper.fault)
    assert "did not answer 'GET " in gripper.fault and "within 0.2 s" in gripper.fault
    done.set()
    gripper.close()
    server.close()


def test_a_request_that_is_not_taken_is_a_fault(ask):
    link, _ = ask(lambda _: [b"nak\n"])
    with pytest.raises(RobotError, match="answered 'nak' to 'SET POS 3'"):
        link.set(POS=3)


def test_nobody_there_is_said(another_host):
    with pytest.raises(RobotError, match=r"cannot be reached \(Connection refused\); is the Robotiq URCap installed"):
        RobotiqGripper(another_host, GripperConfig(port=1), MODEL).connect()


def test_the_closed_fraction_goes_from_open_to_closed_count(gripper, standin):
    for closed in (1.0, 0.0, 0.5):
        gripper.command(closed)
        wait_for(lambda closed=closed: abs(gripper.state().closed - closed) < 0.03)
        assert standin.state()["gripper"]["PRE"] == round(3 + 227 * closed)
    assert gripper.state().count == pytest.approx(standin.state()["gripper"]["POS"], abs=1)


def test_calibration_is_the_cells(standin):
    config = GripperConfig(open_count=20, closed_count=200)
    gripper = RobotiqGripper(standin.host, config, MODEL)
    gripper.activate()
    gripper.connect()
    gripper.command(0.5)
    wait_for(lambda: standin.state()["gripper"]["PRE"] == 110)
    wait_for(lambda: abs(gripper.state().closed - 0.5) < 0.02)
    gripper.close()


def test_only_a_changed_count_is_sent(ask, another_host):
    values = {b"STA": b"3", b"FLT": b"0", b"OBJ": b"3", b"POS": b"3"}
    server = Answers(
        another_host, lambda data: [b"ack\n" if data[:3] == b"SET" else data[4:7] + b" " + values[data[4:7]] + b"\n"]
    )
    gripper = RobotiqGripper(another_host, GripperConfig(port=server.port), MODEL)
    gripper.connect()
    for closed in (0.4, 0.4, 0.4004, 0.4, 0.6):
        gripper.command(closed)
        time.sleep(0.1)
    gripper.close()
    server.close()
    assert [data for data in server.requests if data[:3] == b"SET"] == [
        b"SET POS 94 SPE 255 FOR 50 GTO 1\n",
        b"SET POS 139 SPE 255 FOR 50 GTO 1\n",
    ]


def test_what_is_asked_again_after_another_program_moved_the_fingers_is_sent_again(gripper, standin):
    gripper.command(0.5)
    wait_for(lambda: abs(gripper.state().closed - 0.5) < 0.03)
    time.sleep(RESPONSE_S + STILL_S + 0.2)  # at rest, and nobody drives
    other = UrCapSocket(standin.host, CONFIG.port, 1.0)
    other.set(POS=3, GTO=1)
    wait_for(lambda: gripper.state().closed < 0.02)
    time.sleep(0.2)
    assert gripper.fault is None
    assert other.get("PRE") == 3, "td3robot moved the fingers by itself"
    gripper.command(0.5)
    wait_for(lambda: abs(gripper.state().closed - 0.5) < 0.03)
    other.close()


def test_fingers_that_another_program_moves_while_we_drive_are_a_fault(gripper, standin):
    other, end = UrCapSocket(standin.host, CONFIG.port, 1.0), time.monotonic() + 8.0
    opened = False
    while gripper.fault is None and time.monotonic() < end:
        gripper.command(0.5)
        if not opened and time.monotonic() > end - 8.0 + RESPONSE_S + STILL_S + 1.5:
            other.set(POS=3, GTO=1)
            opened = True
        time.sleep(0.05)
    other.close()
    assert "although td3robot did not move them: another program drives the gripper" in gripper.fault


@pytest.mark.parametrize(
    ("counts", "noticed"),
    [
        ([100] * 40 + [20], 100),  # opened
        ([100] * 40 + [105] * 40 + [120] * 40, None),  # the object gives way
        ([100] * 40 + [229], None),  # the object is gone, and the fingers close
        ([100] * 5 + [80] * 5 + [60] * 5, None),  # still on the way of an earlier command
    ],
)
def test_only_fingers_that_leave_what_they_were_told_moved_by_themselves(counts, noticed):
    watch = FingerWatch(MOVED_COUNTS)
    watch.told(230, 0.0)
    found = [watch.moved_from(count, 0.05 * i) for i, count in enumerate(counts)]
    assert next((rest for rest in found if rest is not None), None) == noticed


def test_an_object_between_the_fingers_is_noticed(gripper, standin):
    assert not gripper.state().holds
    for obj in (1, 2):
        state = gripper.state()
        assert type(state)(state.count, state.closed, obj, state.stamp).holds


def test_a_gripper_that_is_not_active_is_not_used(gripper, standin):
    gripper.close()
    standin.fault("gripper_not_activated", for_s=0.3)
    wait_for(lambda: standin.state()["gripper"]["STA"] != 3)
    with pytest.raises(RobotError, match=r"not active \(STA \d, wanted 3\)"):
        gripper.connect()
    with pytest.raises(RobotError, match="not connected"):
        RobotiqGripper(standin.host, CONFIG, MODEL).state()


def test_activation_is_refused_while_the_gripper_is_in_use(gripper):
    with pytest.raises(RobotError, match="in use; close the robot before"):
        gripper.activate()


def test_an_independent_client_sees_and_does_the_same(gripper, standin):
    pyrobotiqur = pytest.importorskip("pyrobotiqur")
    with pyrobotiqur.RobotiqGripper(standin.host) as other:
        gripper.command(0.5)
        wait_for(lambda: gripper.state().obj == 3 and abs(gripper.state().closed - 0.5) < 0.02)
        assert other.get_position() == pytest.approx(gripper.state().count, abs=1)
        assert other.get_requested_position() == round(3 + 227 * 0.5)
        assert other.get_object_status() == gripper.state().obj
        other.move(60)
        wait_for(lambda: abs(gripper.state().count - 60) <= 2 and abs(other.get_position() - 60) <= 2)
        assert gripper.state().closed == pytest.approx(57 / 227, abs=0.01)
