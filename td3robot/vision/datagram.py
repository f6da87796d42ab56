"""What a tracker sends about one object in one frame."""

import json

from td3robot.geometry import quaternion
from td3robot.state import Pose


def datagram(name: str, exposed_at: float, pose: Pose) -> bytes:
    """Return the message about an object.

    Args:
        name: The object's.
        exposed_at: Unix time of the exposure [s].
        pose: In the arm's base frame.
    """
    message = {
        "name": name,
        "stamp": exposed_at,
        "position_m": pose.position.tolist(),
        "quaternion_wxyz": quaternion(pose.rotation).tolist(),
    }
    return json.dumps(message).encode()
