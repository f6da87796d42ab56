"""The bench: one port for what a person in the lab would do or see. Real robots have none; no driver uses it.

One JSON object a line, each way. A request has one or more of the keys in :data:`REQUESTS`; the answer has ``ok``, and
``error`` with one sentence where something was refused.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from td3robot.errors import ConfigError, Td3RobotError, choose
from td3robot.robots.simulated.scene import quaternion
from td3robot.standin.dashboard import serial_number
from td3robot.standin.fault_kinds import parse_fault
from td3robot.standin.gripper import READABLE
from td3robot.standin.loop import Connection
from td3robot.state import Array, Pose

if TYPE_CHECKING:
    from td3robot.standin.server import Server

MAX_LINE = 1 << 16
# More at once would keep the controller from its ticks.
MAX_ROWS = 200


class BenchPort:
    """One person at the bench."""

    def __init__(self, connection: Connection, server: "Server") -> None:
        self._connection, self._server = connection, server
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Answer every whole line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self._connection.close()
            return
        for line in lines:
            self._connection.send(json.dumps(self._answer(line)).encode() + b"\n")

    def closed(self) -> None:
        """Nothing to give back."""

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or not request:
                raise ConfigError(f"a request is a JSON object with some of: {', '.join(REQUESTS)}")
            answer: dict[str, Any] = {"ok": True}
            for key, value in request.items():
                if key not in REQUESTS:
                    raise ConfigError(choose("request", key, REQUESTS))
                answer |= REQUESTS[key](self._server, value) or {}
        except (ValueError, TypeError, KeyError, Td3RobotError) as error:
            return {"ok": False, "error": str(error)}
        return answer


def _state(server: "Server", _value: Any) -> dict[str, Any]:
    controller, arm = server.controller, server.arm
    tcp, velocity = arm.tcp(), arm.tcp_velocity()
    gripper = controller.gripper
    return {
        "token": controller.config.token,
        "serial_number": serial_number(controller.config.token),
        "time_s": controller.time_s,
        "robot_mode": controller.robot_mode.name,
        "safety_mode": controller.safety_mode.name,
        "remote": controller.remote,
        "program_running": controller.script is not None,
        "popup": controller.popup,
        "speed_slider": controller.slider,
        "q": arm.q.tolist(),
        "dq": arm.dq.tolist(),
        "tcp_position_m": tcp.position.tolist(),
        "tcp_speed_m_s": float(np.linalg.norm(velocity[:3])),
        "contact_force_n": arm.contact_force(),
        "gripper": {"driver_q": arm.driver_q, **{name: gripper.get(name) for name in READABLE}},
        "objects": {name: _to_json(pose) for name, pose in arm.object_poses().items()},
        "wire": controller.accounting.to_json(),
        "clock": server.clock.to_json(),
    }


def _place(server: "Server", value: Any) -> None:
    known = server.arm.object_poses()
    poses = {}
    for name, given in dict(value).items():
        if name not in known:
            raise ConfigError(choose("object", name, known))
        poses[name] = _pose(given)
    server.arm.place(poses)


def _pose(given: Any) -> Pose:
    position = np.array(given["position_m"], dtype=float)
    wxyz = np.array(given.get("quaternion_wxyz", [1.0, 0.0, 0.0, 0.0]), dtype=float)
    if position.shape != (3,) or wxyz.shape != (4,) or not np.isfinite([*position, *wxyz]).all():
        raise ConfigError(f"{given!r} is no pose: position_m has three numbers, quaternion_wxyz four, all finite")
    length = float(np.linalg.norm(wxyz))
    if length < 1e-6:
        raise ConfigError("quaternion_wxyz has no length")
    rotation: Array = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, wxyz / length)
    return Pose(position, rotation.reshape(3, 3))


def _to_json(pose: Pose) -> dict[str, Any]:
    return {"position_m": pose.position.tolist(), "quaternion_wxyz": quaternion(pose.rotation).tolist()}


def _reset(server: "Server", value: Any) -> None:
    home = server.arm.spec.arm.home
    q = home if value is True else np.array(value["q"], dtype=float)
    if q.shape != home.shape or not np.isfinite(q).all():
        raise ConfigError(f"reset needs true, or q with {len(home)} finite joint angles, not {value!r}")
    server.faults.clear()
    server.controller.reset(q.copy())


def _emergency_stop(server: "Server", value: Any) -> None:
    if value:
        server.controller.emergency_stop()
    else:
        server.controller.release_emergency_stop()


def _slide(server: "Server", value: Any) -> None:
    server.controller.slider = min(max(float(value), 0.0), 1.0)


def _record(server: "Server", _value: Any) -> dict[str, Any]:
    rows, left = server.controller.accounting.take_record(MAX_ROWS)
    return {"record": rows, "left": left}


REQUESTS: dict[str, Callable[["Server", Any], dict[str, Any] | None]] = {
    "state": _state,
    "place": _place,
    "fault": lambda server, value: server.faults.request(parse_fault(value)),
    "clear_faults": lambda server, value: server.faults.clear(),
    "episode": lambda server, value: server.faults.begin_episode(int(value)),
    "emergency_stop": _emergency_stop,
    "remote": lambda server, value: server.controller.set_remote(bool(value)),
    "speed_slider": _slide,
    "reset": _reset,
    "reset_wire": lambda server, value: server.controller.accounting.reset(),
    "record": _record,
    "log": lambda server, value: {"log": list(server.controller.entries)},
}
