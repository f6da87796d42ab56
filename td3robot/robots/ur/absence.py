"""The message for a host where no UR controller listens. Plain Python, for workers."""

from ipaddress import ip_address


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
