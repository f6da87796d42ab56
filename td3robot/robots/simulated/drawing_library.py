"""The drawing library that ``MUJOCO_GL`` names, and whether MuJoCo can be imported with it."""

import os
import sys


def drawing_fault() -> str | None:
    """Return why MuJoCo cannot be imported because of ``MUJOCO_GL``, or None; without it, nothing is tried."""
    wanted = os.environ.get("MUJOCO_GL")
    if not wanted:
        return None
    try:
        import mujoco  # noqa: F401
    except Exception as error:  # noqa: BLE001  # whatever the OpenGL loader raises where a library is missing
        reason = " ".join(str(error).split())
        return (
            f"MUJOCO_GL is {wanted!r}, and MuJoCo does not start with it here ({reason}); unset it, or install what it "
            "names: egl needs libegl1, osmesa needs libosmesa6"
        )
    return None


def drawing_library() -> str:
    """Return what ``MUJOCO_GL`` names, or ``egl`` where there is no display; an empty text is MuJoCo's own choice."""
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    return "egl" if sys.platform == "linux" and not wanted and "DISPLAY" not in os.environ else wanted
