"""Pictures of a MuJoCo model without a window."""

import sys
import threading
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.errors import ConfigError
from td3robot.robots.simulated.drawing_library import drawing_library

MAX_GEOMS = 1000


class Offscreen:
    """An OpenGL context that draws one model, in the thread that made it.

    Args:
        model: The model.
        width, height: Size of the pictures.

    Raises:
        ConfigError: OpenGL is not available.

    Attributes:
        scene: What is drawn; filled by ``mjv_updateScene``.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._thread, self._is_closed = threading.get_ident(), False
        try:
            self._gl = _gl_context(width, height)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        except Exception as error:  # noqa: BLE001  # whatever the platform's OpenGL loader raises
            raise ConfigError(
                f"no picture can be drawn here: offscreen OpenGL does not work ({error}); "
                "install EGL (libegl1), or set MUJOCO_GL=osmesa with libosmesa6"
            ) from None
        self.scene = mujoco.MjvScene(model, MAX_GEOMS)
        # A software renderer spends nine tenths of a frame on shadows.
        self.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0

    def require_thread(self) -> None:
        """Refuse another thread than the one that made this.

        Raises:
            ConfigError: It is another one.
        """
        if threading.get_ident() != self._thread:
            raise ConfigError(
                "pictures are drawn by the thread that drew the first one, because an OpenGL context belongs to one "
                "thread; render there, or make an environment in each thread"
            )

    def draw(self) -> NDArray[np.uint8]:
        """Return an image (height, width, 3) of the scene."""
        self._gl.make_current()
        mujoco.mjr_render(self._viewport, self.scene, self._context)
        frame = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(frame, None, self._viewport, self._context)
        return np.ascontiguousarray(frame[::-1])

    def close(self) -> None:
        """Free the OpenGL context; called from another thread, leave that to the end of the program. May be repeated.

        Without this, another context that is current when this one is collected would lose its textures.
        """
        if threading.get_ident() != self._thread or self._is_closed:
            return
        self._is_closed = True
        self._gl.make_current()
        self._context.free()
        self._gl.free()


def _gl_context(width: int, height: int) -> Any:
    """Make the context that MUJOCO_GL names, or an EGL one if there is no display, or else MuJoCo's own.

    MuJoCo reads the variable when it is first imported, which is too early to expect a program to have set it.
    """
    wanted = drawing_library()
    if wanted == "egl" and sys.platform == "linux":
        from mujoco.egl import GLContext
    elif wanted == "osmesa":
        from mujoco.osmesa import GLContext
    else:
        from mujoco.gl_context import GLContext
    return GLContext(width, height)
