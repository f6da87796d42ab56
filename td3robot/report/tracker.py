"""What a session's tracker saw with its camera, from the record's line about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from td3robot.format import number, percent
from td3robot.report.html import Facts, Text

ABOUT = "The tracker finds objects by their tags, in the frames of a camera."


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker's figures.

    Attributes:
        frames: How many frames it looked at.
        rate_hz: How many a second.
        latency_ms, work_ms: Median time from exposure to pose, and the part of it that it takes to look.
        seen: Share of the frames in which each object was found, by name.
        camera: The simulated camera's width, height [pixels], ``rate_hz`` and ``latency_s``; None for a real one.
        poses: How many poses were compared with the truth; 0 where nobody knows it.
        error_mm: How far they were off: ``p50``, ``p95`` and ``max``.
        stamp_off_ms: Median time from the exposure to the stamp.
        frames_late: Share of the frames that were drawn too late.
    """

    frames: int
    rate_hz: float
    latency_ms: float
    work_ms: float
    seen: Mapping[str, float]
    camera: Mapping[str, float] | None = None
    poses: int = 0
    error_mm: Mapping[str, float] | None = None
    stamp_off_ms: float | None = None
    frames_late: float | None = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Return the figures in a line of a record.

        Raises:
            KeyError, TypeError: It lacks some.
        """
        names = set(cls.__dataclass_fields__) & line.keys()
        found = cls(**{name: line[name] for name in names})
        _ = [float(share) for share in found.seen.values()]
        for values, keys in ((found.error_mm, ("p50", "p95", "max")), (found.camera, ("width", "height", "rate_hz"))):
            _ = [] if values is None else [float(values[key]) for key in keys]
        return found

    def blocks(self) -> list[Any]:
        """Return the parts of its section on a page."""
        pairs = [
            ("Frames looked at", f"{self.frames:,}, {number(self.rate_hz)} a second"),
            ("From exposure to pose", f"{number(self.latency_ms, unit='ms')} (median), of which it takes "
             f"{number(self.work_ms, unit='ms')} to look"),
            *((f"{name}: seen in", f"{percent(share)} of the frames") for name, share in self.seen.items()),
        ]  # fmt: skip
        if self.camera is not None:
            size = f"{self.camera['width']:g} x {self.camera['height']:g} pixels"
            said = f"simulated, {size}, {self.camera['rate_hz']:g} frames a second"
            pairs.insert(0, ("Camera", said))
        if self.error_mm is not None:
            off = ", ".join(
                f"{number(self.error_mm[key], unit='mm')} ({name})"
                for key, name in (("p50", "median"), ("p95", "95 %"), ("max", "largest"))
            )
            pairs += [("Poses compared with the truth", f"{self.poses:,}"), ("Off the truth by", off)]
        if self.stamp_off_ms is not None:
            pairs.append(("Stamps later than the exposure by", number(self.stamp_off_ms, unit="ms")))
        if self.frames_late is not None:
            pairs.append(("Frames drawn too late", percent(self.frames_late)))
        return [Text(ABOUT), Facts(pairs)]
