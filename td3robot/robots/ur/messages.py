"""What errors of a connection to a UR controller mean, the likeliest cause first. Plain Python, for workers."""

import re
from ipaddress import ip_address

# Parts of ur_rtde 1.6.5's messages, and what the user reads instead.
SENTENCES = (
    (
        "input registers are already in use",
        "another program drives the controller at {host}: its RTDE inputs are taken; end that td3robot, ROS driver "
        "or RTDE client first; if there is none, a fieldbus (EtherNet/IP, PROFINET, MODBUS) or a URCap holds them: "
        "disable it under Installation",
    ),
    (
        "timeout connecting to ur dashboard server|dashboard client deadline expired",
        "the dashboard server at {host}, port 29999, accepts connections and does not answer: close other programs "
        "that use it, or restart the controller",
    ),
    (
        "operation canceled",
        "the {what} of the controller at {host} accepts connections and does not answer in time: close other programs "
        "that use it, check the network, or restart the controller",
    ),
    (
        "data synchronization|unable to start synchronization",
        "the controller at {host} answers at RTDE's port 30004 and sends no states: close other RTDE clients, check "
        "the network's load, then try again",
    ),
    (
        "control program is not running|script is not running|start control script|failed to send rtde|could not send",
        "the controller at {host} did not start the control script: another program runs there, a popup waits at the "
        "pendant, or its real-time client interface (port 30003) is not enabled",
    ),
    (
        "could not connect to|connection refused|connect: ",
        "a port of the controller at {host} refuses connections: enable RTDE (30004), the dashboard server (29999) and "
        "the real-time client interface (30003) under Settings, Security, Services",
    ),
    (
        "end of file|connection reset|broken pipe|connection closed",
        "the controller at {host} closed the connection while it was set up: it restarts, its services are being "
        "changed, or too many clients are connected; end the others and try again",
    ),
    (
        "polyscopeversion::parse|parsing failed|bad lexical cast|codec can't decode",
        "the dashboard at {host} says something that cannot be read: something else than a UR answers there; "
        "check ur.host",
    ),
    (
        "remote control",
        "the robot is in local control: switch it to remote control at the pendant, then try again",
    ),
)
LONGEST = 200


def explain_ur_error(error: BaseException, host: str, what: str) -> str:
    """Return what an error of ur_rtde means, with its own words for those who look them up.

    Args:
        error: The error.
        host: The controller.
        what: The part of the controller concerned: ``dashboard server (port 29999)``.
    """
    said = " ".join(str(error).split())[:LONGEST]
    for pattern, sentence in SENTENCES:
        if re.search(pattern, said.lower()):
            return f"{sentence.format(host=host, what=what)} (ur_rtde: {said})"
    return f"the {what} of the controller at {host} cannot be used: {said or 'ur_rtde gives no reason'}"


def connection_refused_message(host: str, port: int, error: OSError, services: str = "", arm: str = "ARM") -> str:
    """Return a message that nobody listens, and what to do: on a loopback address, only a stand-in could.

    Args:
        host: Where nobody listens.
        port: The TCP port there.
        error: The error of the connection.
        services: What else to check on a robot.
        arm: The arm that is expected there.
    """
    nobody = f"there is no UR controller at {host}, port {port} ({error.strerror or error})"
    if _is_loopback(host):
        return f"{nobody}; that is this computer: start a simulated one, td3robot standin {arm} --host {host}"
    return f"{nobody}; check ur.host, the cable and the robot's network settings{services}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
