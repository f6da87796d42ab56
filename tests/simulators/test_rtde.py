"""The protocol, byte by byte, with a client that knows the document only."""

import struct
import time
from itertools import pairwise

import pytest
from rtde_client import SIZES, RtdeClient

NAMES = {
    "timestamp": "DOUBLE",
    "actual_q": "VECTOR6D",
    "robot_mode": "INT32",
    "joint_mode": "VECTOR6INT32",
    "runtime_state": "UINT32",
    "actual_digital_output_bits": "UINT64",
    "payload_cog": "VECTOR3D",
    "output_int_register_47": "INT32",
    "output_double_register_47": "DOUBLE",
    "input_double_register_5": "DOUBLE",
}


@pytest.fixture
def client(standin):
    with RtdeClient(standin.host) as client:
        assert client.request("V", struct.pack(">H", 2)) == b"\x01"
        yield client


def test_versions(standin, client):
    with RtdeClient(standin.host) as other:
        assert other.request("V", struct.pack(">H", 3)) == b"\x00", "only protocol 2 is spoken"
    assert struct.unpack(">4I", client.request("v"))[:2] == (5, 11)


def test_outputs_have_the_documented_types_and_sizes(standin, client):
    number, types = client.outputs(list(NAMES))
    assert number == 1 and types == list(NAMES.values())
    assert client.request("S") == b"\x01"
    payload = client.data()
    assert len(payload) == 1 + sum(SIZES[kind] for kind in types) and payload[0] == number
    values = struct.unpack(">B d 6d i 6i I Q 3d i d d".replace(" ", ""), payload)
    assert values[2:8] == pytest.approx(standin.state()["q"], abs=1e-5)
    assert values[8] == 7 and values[9:15] == (253,) * 6 and values[15] == 1


@pytest.mark.parametrize(("frequency", "period"), [(500.0, 0.002), (125.0, 0.008), (20.0, 0.05)])
def test_the_stream_has_the_period_that_was_asked_for(client, frequency, period):
    client.outputs(["timestamp"], frequency)
    client.request("S")
    stamps = [struct.unpack(">Bd", client.data())[1] for _ in range(8)]
    assert [later - sooner for sooner, later in pairwise(stamps)] == pytest.approx([period] * 7)


def test_an_unknown_output_is_named_and_nothing_starts(client):
    assert client.outputs(["timestamp", "actual_qq"]) == (0, ["DOUBLE", "NOT_FOUND"])
    assert client.request("S") == b"\x00"


def test_pause_stops_the_stream(client):
    client.outputs(["timestamp"], 500.0)
    client.request("S")
    client.data()
    assert client.request("P") == b"\x01"
    client.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.data()


def test_inputs_are_numbered_checked_and_written(standin, client):
    assert client.inputs(["input_double_register_5", "input_int_register_3"]) == (1, ["DOUBLE", "INT32"])
    assert client.inputs(["speed_slider_mask", "speed_slider_fraction"]) == (2, ["UINT32", "DOUBLE"])
    assert client.inputs(["input_double_register_48"]) == (0, ["NOT_FOUND"])
    client.outputs(["input_double_register_5", "input_int_register_3"], 500.0)
    client.request("S")
    client.send("U", struct.pack(">Bdi", 1, -2.5, 7))
    client.send("U", struct.pack(">BId", 2, 1, 0.25))
    client.send("U", struct.pack(">Bd", 1, 99.0))  # four bytes short: nothing may be written
    client.send("U", struct.pack(">Bdi", 9, 99.0, 9))  # a recipe that was never set up
    time.sleep(0.05)
    while len(client.socket.recv(4096)) == 4096:
        pass
    client.buffer = b""
    assert struct.unpack(">Bdi", client.data()[-13:])[1:] == (-2.5, 7)
    assert standin.state()["speed_slider"] == 0.25
    assert any("which it never set up" in text for text in standin.log())
    assert any("9 bytes for input recipe 1, which has 13" in text for text in standin.log())


def test_an_input_belongs_to_one_client_until_it_leaves(standin, client):
    assert client.inputs(["input_int_register_0"])[1] == ["INT32"]
    with RtdeClient(standin.host) as other:
        assert other.inputs(["input_int_register_0", "input_int_register_1"]) == (0, ["IN_USE", "INT32"])
        client.socket.close()
        time.sleep(0.05)
        assert other.inputs(["input_int_register_0", "input_int_register_1"]) == (1, ["INT32", "INT32"])


def test_a_broken_header_closes_the_connection(standin, client):
    client.socket.sendall(b"\x00\x01V")
    with pytest.raises(ConnectionError):
        client.package()


def test_a_client_that_does_not_read_harms_nobody(standin, client):
    client.outputs([name for name in NAMES if name != "joint_mode"] * 20, 500.0)
    client.request("S")
    before = standin.state()["clock"]["ticks"]
    time.sleep(0.4)
    assert standin.state()["clock"]["ticks"] - before > 150
