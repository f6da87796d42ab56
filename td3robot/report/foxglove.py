"""Messages with Foxglove's own schemas, which its panels show without a converter.

The schemas are those of https://github.com/foxglove/foxglove-sdk, ``schemas/jsonschema`` (August 2026), without their
descriptions. Foxglove knows a schema by its name. Poses are in the frame ``base``, the robot's base.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

Message = dict[str, Any]
Schema = dict[str, Any]

BASE = "base"


def _object(title: str | None, required: Sequence[str] | None = None, **properties: Schema) -> Schema:
    named = {} if title is None else {"title": title}
    return named | {"type": "object", "properties": properties, "required": list(required or properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
TIME: Schema = {
    "type": "object",
    "title": "time",
    "properties": {
        "sec": {"type": "integer", "minimum": 0},
        "nsec": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    },
}
VECTOR = _object("foxglove.Vector3", x=NUMBER, y=NUMBER, z=NUMBER)
QUATERNION = _object("foxglove.Quaternion", x=NUMBER, y=NUMBER, z=NUMBER, w=NUMBER)
LEVELS = ("UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")

JOINT_STATES = _object(
    "foxglove.JointStates",
    timestamp=TIME,
    joints=_list(
        _object(
            "foxglove.JointState",
            ["name"],
            name=TEXT,
            position=NUMBER,
            velocity=NUMBER,
            acceleration=NUMBER,
            effort=NUMBER,
        )
    ),
)
POSE_IN_FRAME = _object(
    "foxglove.PoseInFrame",
    timestamp=TIME,
    frame_id=TEXT,
    pose=_object("foxglove.Pose", position=VECTOR, orientation=QUATERNION),
)
FRAME_TRANSFORMS = _object(
    "foxglove.FrameTransforms",
    transforms=_list(
        _object(
            "foxglove.FrameTransform",
            timestamp=TIME,
            parent_frame_id=TEXT,
            child_frame_id=TEXT,
            translation=VECTOR,
            rotation=QUATERNION,
        )
    ),
)
LOG = _object(
    "foxglove.Log",
    timestamp=TIME,
    level={
        "title": "foxglove.LogLevel",
        "oneOf": [{"title": level, "const": number} for number, level in enumerate(LEVELS)],
    },
    message=TEXT,
    name=TEXT,
    file=TEXT,
    line={"type": "integer", "minimum": 0},
)


def joint_states(
    stamp_ns: int, names: Sequence[str], positions: Iterable[float], velocities: Iterable[float] | None = None
) -> Message:
    """Return joint angles [rad], and velocities [rad/s] if known; a number that is not finite is left out."""
    joints: list[Message] = [{"name": name} for name in names]
    for kind, values in (("position", positions), ("velocity", velocities)):
        for joint, value in zip(joints, values or (), strict=False):
            if isfinite(value):
                joint[kind] = value
    return {"timestamp": _time(stamp_ns), "joints": joints}


def pose_in_frame(stamp_ns: int, position: Sequence[float], wxyz: Sequence[float]) -> Message:
    """Return a pose in the base frame: position (3,) [m], and quaternion (4,), w first."""
    pose = {"position": _vector(position), "orientation": _quaternion(wxyz)}
    return {"timestamp": _time(stamp_ns), "frame_id": BASE, "pose": pose}


def frame_transforms(stamp_ns: int, poses: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Message:
    """Return the frames of poses in the base frame, by name: position (3,) [m], and quaternion (4,), w first."""
    return {
        "transforms": [
            {"timestamp": _time(stamp_ns), "parent_frame_id": BASE, "child_frame_id": name,
             "translation": _vector(position), "rotation": _quaternion(wxyz)}
            for name, (position, wxyz) in poses.items()
        ]
    }  # fmt: skip


def log(stamp_ns: int, level: str, name: str, message: str) -> Message:
    """Return a line of a log; ``level`` is one of ``LEVELS``."""
    return {
        "timestamp": _time(stamp_ns), "level": LEVELS.index(level), "message": message, "name": name, "file": "",
        "line": 0,
    }  # fmt: skip


def _time(stamp_ns: int) -> Message:
    sec, nsec = divmod(stamp_ns, 1_000_000_000)
    return {"sec": sec, "nsec": nsec}


def _vector(position: Sequence[float]) -> Message:
    return dict(zip("xyz", map(float, position), strict=True))


def _quaternion(wxyz: Sequence[float]) -> Message:
    return dict(zip("wxyz", map(float, wxyz), strict=True))
