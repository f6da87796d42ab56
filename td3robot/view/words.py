"""Texts of the pages: what the guard did, and names of what is shown."""

import re
from collections.abc import Iterable

REASONS = {
    "joint_speed": "joint speed",
    "tcp_speed": "tool speed",
    "acceleration": "acceleration",
    "position": "a joint's limit",
    "workspace": "the edge of the workspace",
    "clearance": "distance to table and links",
    "lead": "the arm lags behind",
}


def ruling_in_words(reasons: Iterable[str]) -> str:
    """Return what the guard did in a control period, in words."""
    limits = [REASONS.get(reason, reason) for reason in reasons]
    return f"Guard: **held back** by {', '.join(limits)}" if limits else "Guard: lets it through"


def joint_name(identifier: str) -> str:
    """Return a joint's name as in reports: ``shoulder_pan_joint`` is ``Shoulder pan``."""
    return re.sub(r"^fr3_joint", "joint ", identifier).removesuffix("_joint").replace("_", " ").capitalize()
