"""Whether MuJoCo can be imported with the drawing library that ``MUJOCO_GL`` names."""

import os


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
