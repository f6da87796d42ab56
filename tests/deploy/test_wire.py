"""Faults at the wire, between the unmodified driver and the simulated controller: rest, latch, record, nothing left."""

import re
import socket

import pytest
from drills import Drill, Scene
from wire import PORTS, Wire
from wire_faults import FAULTS, drilled

# One or two of each kind; all others with -m slow, and in benchmarks/wire_faults.py.
QUICK = {
    "q[0] = 1e+300",
    "RTDE to the driver: 8 bytes short, and said so",
    "gripper: answers 'POS 999' to POS",
    "connecting: the dashboard hangs",
}
THOROUGH = {
    "q drifts by 0.05 rad/s, all joints",
    "dq[1] = 1e+300",
    "clock backwards",
    "speed scaling nan",
    "speed slider nan",
    "target[0] off by 0.3 rad",
    "before the first target: actual_q and target_q off by 0.15",
}


# Nothing is noticed in motion, and the order to stop, late as well, may be refused in the end; and what this scene's
# patience with a busy computer covers.
UNSURE = {"RTDE to the robot: those of 0.3 s ago", "gripper: 0.25 s late"}


def each(faults):
    def marks(name):
        return () if name in QUICK else pytest.mark.thorough if name in THOROUGH else pytest.mark.slow

    return [pytest.param(it, id=it.name, marks=marks(it.name)) for it in faults]


@pytest.fixture(scope="module")
def scene(own_host, tmp_path_factory):
    pytest.importorskip("rtde_control")
    scene = Scene(own_host(3), tmp_path_factory.mktemp("wire"), timeout_scale=3.0, tasks=("reach",), near=own_host(4))
    yield scene
    scene.close()


def test_what_passes_untouched_is_no_fault(scene):
    outcome = scene.perform(Drill("nothing", lambda scene: None, None, None))
    assert (outcome.said, outcome.ended, outcome.latched, outcome.left) == (None, "operator", None, ())
    assert outcome.moving


@pytest.mark.parametrize("fault", each(it for it in FAULTS if not it.connecting and it.name not in UNSURE))
def test_a_fault_in_motion(scene, fault):
    outcome = scene.perform(drilled(fault))
    assert outcome.moving
    assert outcome.left == ()
    if fault.says is None:
        assert (outcome.said, outcome.ended, outcome.latched) == (None, "operator", None), fault.why_not
        return
    assert outcome.said is not None, "nothing was noticed"
    assert re.search(fault.says, outcome.said), outcome.said
    assert outcome.ended == "fault"
    assert outcome.latched and outcome.said.startswith(outcome.latched)
    assert outcome.recorded[0] >= 8 and outcome.recorded[1] == "rest"
    assert outcome.rest_s - outcome.told_s < 1.0


@pytest.mark.parametrize("fault", each(it for it in FAULTS if it.connecting))
def test_a_fault_before_the_first_motion(scene, fault):
    said, took = scene.refusal(fault.strike)
    if fault.says is None:
        assert said is None, fault.why_not
        return
    assert said is not None, "nothing was noticed"
    assert re.search(fault.says, said), said
    assert "Traceback" not in said and "last words" not in said
    assert took < 30.0


def test_every_quick_fault_is_one():
    assert {fault.name for fault in FAULTS} >= QUICK | THOROUGH
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 100
    assert all(fault.says is not None or fault.why_not for fault in FAULTS)


def test_the_proxy_leaves_no_port_open(own_host):
    near, far = own_host(5), own_host(6)
    with Wire(near, far), socket.create_connection((near, PORTS["dashboard"]), 5.0) as link:
        assert link.recv(1) == b""  # there is no controller
    for port in PORTS.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((near, port), 5.0)
