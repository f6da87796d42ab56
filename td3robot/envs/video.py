"""Recording episodes to an MP4 file."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gymnasium

from td3robot.atomic import Replacement
from td3robot.errors import ConfigError, MissingExtraError


class VideoRecorder:
    """Append an environment's frames to a file; use as a context manager.

    The file appears under its name only once it is complete.

    Args:
        path: Output path, ending in ``.mp4``.
        fps: Frames a second, the environment's control rate for real time.
        max_frames: Frames beyond this are left out.
    """

    def __init__(self, path: Path, fps: float, max_frames: int) -> None:
        try:
            import imageio
        except ImportError:
            raise MissingExtraError("video", "recording a video") from None
        if path.suffix.lower() != ".mp4":
            raise ConfigError(f"a video is written as .mp4, and {path} is not one")
        self.path, self.frames = path, 0
        self._max_frames = max_frames
        path.parent.mkdir(parents=True, exist_ok=True)
        self._replacement = Replacement(path)
        self._writer = imageio.get_writer(self._replacement.temporary, fps=fps, macro_block_size=8)

    def add(self, environment: gymnasium.Env[Any, Any]) -> None:
        """Append the environment's current frame."""
        if self.frames < self._max_frames:
            try:
                frame: Any = environment.render()
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever the environment's drawing library raises
                advice = "without a display, it may need EGL (libegl1), or MUJOCO_GL=osmesa with libosmesa6"
                raise ConfigError(f"this environment cannot be drawn here: {error}; {advice}") from None
            try:
                self._writer.append_data(frame)
            except OSError as error:
                raise self._unwritten(error) from None
            self.frames += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
            if kind is None and self.frames:
                if not self._replacement.temporary.stat().st_size:
                    raise OSError("it is empty")
                self._replacement.commit()
        except OSError as error:
            if kind is None:
                raise self._unwritten(error) from None
        finally:
            self._replacement.discard()

    def _unwritten(self, error: OSError) -> ConfigError:
        """Return the error for a video that the encoder could not write; it says no more than that its pipe broke."""
        reason = error.strerror or "the encoder ended"
        return ConfigError(f"the video {self.path} could not be written ({reason}); make room, or give another file")
