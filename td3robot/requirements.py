"""What td3robot's distribution requires, for itself and for each extra, and what of it this platform cannot have."""

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# What only training, reports and the Robotics Toolbox need: a robot's computer does without (launch/robot.txt).
NOT_ON_A_ROBOT = frozenset({
    "torch", "threadpoolctl", "roboticstoolbox-python", "spatialmath-python", "swift-sim", "tensorboard", "matplotlib",
    "plotly",
})  # fmt: skip


def extras() -> list[str]:
    """Return the names of all extras."""
    return metadata("td3robot").get_all("Provides-Extra") or []


def required(extra: str = "") -> "Iterator[Requirement]":
    """Yield the basic requirements, or those of an extra, on this platform."""
    for needed in _all():
        marker = needed.marker
        if extra:
            wanted = marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
        else:
            wanted = marker is None or marker.evaluate({"extra": ""})
        if wanted:
            yield needed


def has(name: str) -> bool:
    """Whether a distribution is installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def installed(needed: "Requirement") -> bool:
    """Whether a requirement is met."""
    return has(needed.name) and needed.specifier.contains(version(needed.name), prereleases=True)


def impossible(extra: str) -> str | None:
    """Return why this platform cannot have an extra, and what to do; None if it can, or has what the extra lacks."""
    for needed in _all():
        conditions = str(needed.marker or "")
        own = re.sub(rf"\(?(.*?)\)? and extra == ['\"]{extra}['\"]", r"\1", conditions)
        if own != conditions and not needed.marker.evaluate({"extra": extra}) and not installed(needed):  # type: ignore[union-attr]
            here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
            return (
                f"{needed.name}, which td3robot[{extra}] installs only where {own}; this is {here}: take another "
                f"Python or computer, or build it from source: pip install '{needed.name}{needed.specifier}'"
            )
    return None


def _all() -> "Iterator[Requirement]":
    from packaging.requirements import Requirement

    try:
        lines = requires("td3robot") or ()
    except PackageNotFoundError:  # it runs from a folder
        return
    for line in lines:
        yield Requirement(line)
