"""Port 29990, the lab: what a person beside the arm would do or see. Real robots do not have it; no driver uses it.

One JSON object per line, each way. A request has one or more of the keys in :data:`REQUESTS`; the answer has ``ok``,
and ``error`` with one sentence if something was refused.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from td3robot.errors import ConfigError, Td3RobotError, choose
from td3robot.geometry import quaternion, rotation_of
from td3robot.simulators.accounting import Clock
from td3robot.simulators.controller import Controller
from td3robot.simulators.faults import Faults, parse_fault
from td3robot.simulators.gripper import READABLE
from td3robot.simulators.loop import Connection, LineHandler
from td3robot.state import Pose

# More rows at once would delay the controller's ticks.
MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class LabContext:
    """What a person in the lab can use."""

    controller: Controller
    faults: Faults
    clock: Clock


class LabPort(LineHandler):
    """One person in the lab."""

    def __init__(self, connection: Connection, lab: LabContext) -> None:
        super().__init__(connection)
        self._lab = lab

    def _answer(self, line: bytes) -> bytes:
        return json.dumps(self._reply(line)).encode() + b"\n"

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or not request:
                raise ConfigError(f"a request is a JSON object with some of: {', '.join(REQUESTS)}")
            answer: dict[str, Any] = {"ok": True}
            for key, value in request.items():
                if key not in REQUESTS:
                    raise ConfigError(choose("request", key, REQUESTS))
                answer |= REQUESTS[key](self._lab, value) or {}
        except (ValueError, TypeError, KeyError, Td3RobotError) as error:
            return {"ok": False, "error": str(error)}
        return answer


def _state(lab: LabContext, _value: Any) -> dict[str, Any]:
    controller, arm = lab.controller, lab.controller.arm
    tcp, velocity = arm.tcp(), arm.tcp_velocity()
    gripper = controller.gripper
    return {
        "token": controller.config.token,
        "serial_number": controller.config.serial_number,
        "time_s": controller.time_s,
        "robot_mode": controller.robot_mode.name,
        "safety_mode": controller.safety_mode.name,
        "remote": controller.remote,
        "program_running": controller.program is not None,
        "popup": controller.popup,
        "speed_slider": controller.inputs.slider,
        "q": arm.q.tolist(),
        "dq": arm.dq.tolist(),
        "tcp_position_m": tcp.position.tolist(),
        "tcp_speed_m_s": float(np.linalg.norm(velocity[:3])),
        "contact_force_n": arm.contact_force(),
        "gripper": {"driver_q": arm.driver_q, **{name: gripper.get(name) for name in READABLE}},
        "objects": {name: _to_json(pose) for name, pose in arm.object_poses().items()},
        "wire": controller.accounting.to_json(),
        "clock": lab.clock.to_json(),
    }


def _place(lab: LabContext, value: Any) -> None:
    known = lab.controller.arm.object_poses()
    poses = {}
    for name, given in dict(value).items():
        if name not in known:
            raise ConfigError(choose("object", name, known))
        poses[name] = _pose(given)
    lab.controller.arm.place(poses)


def _pose(given: Any) -> Pose:
    position = np.array(given["position_m"], dtype=float)
    wxyz = np.array(given.get("quaternion_wxyz", [1.0, 0.0, 0.0, 0.0]), dtype=float)
    if position.shape != (3,) or wxyz.shape != (4,) or not np.isfinite([*position, *wxyz]).all():
        raise ConfigError(f"{given!r} is no pose: position_m needs three numbers, quaternion_wxyz four, all finite")
    length = float(np.linalg.norm(wxyz))
    if length < 1e-6:
        raise ConfigError("quaternion_wxyz has no length")
    return Pose(position, rotation_of(wxyz / length))


def _to_json(pose: Pose) -> dict[str, Any]:
    return {"position_m": pose.position.tolist(), "quaternion_wxyz": quaternion(pose.rotation).tolist()}


def _reset(lab: LabContext, value: Any) -> None:
    home = lab.controller.arm.spec.arm.home
    q = home if value is True else np.array(value["q"], dtype=float)
    if q.shape != home.shape or not np.isfinite(q).all():
        raise ConfigError(f"reset needs true, or q with {len(home)} finite joint angles, not {value!r}")
    lab.faults.clear()
    lab.controller.reset(q.copy())


def _emergency_stop(lab: LabContext, value: Any) -> None:
    if value:
        lab.controller.emergency_stop()
    else:
        lab.controller.release_emergency_stop()


def _slide(lab: LabContext, value: Any) -> None:
    lab.controller.inputs.slider = min(max(float(value), 0.0), 1.0)


def _record(lab: LabContext, _value: Any) -> dict[str, Any]:
    rows, left = lab.controller.accounting.take_record(MAX_ROWS)
    return {"record": rows, "left": left}


REQUESTS: dict[str, Callable[[LabContext, Any], dict[str, Any] | None]] = {
    "state": _state,
    "place": _place,
    "fault": lambda lab, value: lab.faults.request(parse_fault(value)),
    "clear_faults": lambda lab, value: lab.faults.clear(),
    "episode": lambda lab, value: lab.faults.begin_episode(int(value)),
    "emergency_stop": _emergency_stop,
    "remote": lambda lab, value: lab.controller.set_remote(bool(value)),
    "speed_slider": _slide,
    "reset": _reset,
    "reset_wire": lambda lab, value: lab.controller.accounting.reset(),
    "record": _record,
    "log": lambda lab, value: {"log": list(lab.controller.entries)},
}
