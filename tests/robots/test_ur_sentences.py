"""What ur_rtde says is put into our words: the likeliest cause first, and what to do."""

import pytest

from td3robot.robots.ur.connection import LONGEST, explain_ur_error

SAID = {
    "One of the RTDE input registers are already in use! Currently you must disable the EtherNet/IP adapter, PROFINET "
    "or any MODBUS unit configured on the robot. This might change in the future.": "another program drives",
    "Timeout connecting to UR dashboard server.": "accepts connections and does not answer",
    "Dashboard client deadline expired": "accepts connections and does not answer",
    "ur_rtde: Failed to start control script, before timeout of 5 seconds": "did not start the control script",
    "Operation canceled": "the dashboard server of the controller at 192.168.0.10 accepts connections and does not",
    "Failed to start RTDE data synchronization, before timeout": "sends no states",
    "RTDE control program is not running on controller, before timeout": "did not start the control script",
    "Failed to send rtde control script to the controller": "did not start the control script",
    "connect: Connection refused": "refuses connections: enable RTDE",
    "read: End of file": "closed the connection while it was set up",
    "read_some: Connection reset by peer": "closed the connection while it was set up",
    "PolyScopeVersion::parse failed": "something else than a UR",
}


@pytest.mark.parametrize("said", SAID)
def test_each_sentence_has_ours(said):
    ours = explain_ur_error(RuntimeError(said), "192.168.0.10", "dashboard server")
    assert SAID[said] in ours
    assert "192.168.0.10" in ours
    assert said[:100] in ours  # for who looks it up


def test_the_likelier_cause_comes_first():
    ours = explain_ur_error(RuntimeError(next(iter(SAID))), "host", "RTDE server")
    assert ours.index("another program") < ours.index("EtherNet/IP")


def test_what_nobody_knows_is_passed_on_in_one_line_of_bounded_length():
    ours = explain_ur_error(RuntimeError("what\n is\tthis " + "x" * 9999), "host", "RTDE server")
    assert ours.startswith("the RTDE server of the controller at host cannot be used: what is this xxx")
    assert len(ours) < LONGEST + 100 and "\n" not in ours
    assert explain_ur_error(RuntimeError(""), "host", "RTDE server").endswith("ur_rtde gives no reason")
