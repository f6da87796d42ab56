"""Settings that earlier versions had. A file that sets one of them is refused with what replaces it."""

from collections.abc import Iterable, Mapping

# By the setting's place in a run's file (``environment.task.near_m``), or in a cell's, which begins with ``cell.``.
# Each sentence follows "NAME is gone: ", and says what to write instead, or that nothing is needed.
REMOVED: Mapping[str, str] = {}


def removed_settings(names: Iterable[str]) -> str:
    """Return one sentence about the settings of some names that are gone; an empty one if none is.

    Settings with the same replacement share a clause.
    """
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name in REMOVED:
            reasons.setdefault(REMOVED[name], []).append(name)
    return "; ".join(
        f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone: {reason}" for reason, gone in reasons.items()
    )
