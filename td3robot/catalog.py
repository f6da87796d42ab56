"""Finds by name what ships with td3robot: configurations, cells and released policies.

In a clone, these are the top-level folders ``configs/`` and ``checkpoints/``; the wheel has both inside the package.
A path always works in place of a name, and takes precedence if it exists.
"""

from pathlib import Path

from td3robot.errors import nearest

PACKAGE = Path(__file__).parent


def _folder(name: str) -> Path:
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def configurations() -> dict[str, Path]:
    """Return the file of each configuration by its name."""
    return {path.stem: path for path in sorted(_folder("configs").glob("*.yaml"))}


def cells() -> dict[str, Path]:
    """Return the file of each cell by its name."""
    return {path.stem: path for path in sorted((_folder("configs") / "robots").glob("*.yaml"))}


def policies() -> dict[str, Path]:
    """Return the checkpoint of each released policy by its name; runs beside them have no card."""
    cards = sorted(_folder("checkpoints").glob("*/README.md"))
    return {card.parent.name: card.parent for card in cards if (card.parent / "manifest.json").is_file()}


def configuration(path: Path) -> Path:
    """Return the file that a path or a name means."""
    return path if path.is_file() else configurations().get(str(path), path)


def cell(path: Path) -> Path:
    """Return the file that a path or a cell's name means."""
    return path if path.is_file() else cells().get(str(path), path)


def policy(path: Path) -> Path:
    """Return the folder that a path or a released policy's name means."""
    return path if path.exists() else policies().get(str(path), path)


def missing(kind: str, path: Path, known: dict[str, Path]) -> str:
    """Return the sentence for a missing thing, with the nearest name and all names."""
    return f"there is no {kind} {path}{nearest(path.stem, known)} (give a path, or a name: {', '.join(known)})"


def shown(path: Path) -> str:
    """Return how to refer to a file or folder: by name if it was found by name, otherwise by path."""
    for known in (configurations(), cells(), policies()):
        for name, place in known.items():
            if place == path:
                return name
    return str(path)
