"""The page of messages: every refusal that a user of a UR can meet has a row, and every row is a refusal."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "td3robot"
SOURCES = [
    *(PACKAGE / "robots" / "ur").glob("*.py"),
    *(PACKAGE / "robots" / "driver").glob("*.py"),
    *(
        PACKAGE / "robots" / name
        for name in ("travel.py", "trackers/__init__.py", "trackers/udp.py", "objects.py", "guard.py", "interface.py")
    ),
    *(PACKAGE / "deploy" / name for name in ("ledger.py", "operator.py", "deployment.py", "loaded_policy.py")),
    PACKAGE / "records.py",
    PACKAGE / "envs" / "initial_states.py",
]
ERRORS = {
    "StoppedError", "RobotError", "LadderError", "TrackerError", "CommandRefusedError", "RecordError", "_failed",
    "ContractError",
}  # fmt: skip
# What only who writes a program or a driver of their own can meet, or who reads records.
OF_PROGRAMS = (
    "call connect() first", "call close() first", "opened for reading only", "close the robot before", "has no figures",
    "did not answer within 1 s", "does not jump to a posture", "finite joint angles and was not sent",
    "finite joint angles and a closed fraction", "a command of shape", "is no record", "is a record of version",
    "cannot be read: ",
    "is damaged; restore it from a copy",
)  # fmt: skip


def text_of(node):
    """Return a message with … for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return "…"


def messages(sources=SOURCES, errors=ERRORS):
    found = {}
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in errors and text_of(node.args[0]).strip("… ;"):
                    found[text_of(node.args[0])] = path.name
    return found


@pytest.mark.parametrize("message", sorted(messages((PACKAGE / "vision").glob("*.py"), {"CameraError"})))
def test_a_camera_s_sentence_says_what_to_do_by_itself(message):
    """So docs/messages.md needs no row for it."""
    assert re.search(r"[;?]", message), f"{message!r} names no remedy"


def rows():
    page = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    return [
        line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ") and "| message |" not in line
    ]


def fragments(row):
    return [part.strip() for part in row.split("…") if len(part.strip(" :(),")) > 3]


def says(row, message):
    """Whether a message has all fragments of a row, in order."""
    return bool(fragments(row)) and re.search(".*".join(map(re.escape, fragments(row))), message, re.S) is not None


@pytest.mark.parametrize("message", sorted(messages()))
def test_every_refusal_has_a_row(message):
    if any(part in message for part in OF_PROGRAMS):
        return
    assert any(says(row, message) for row in rows()), f"docs/messages.md explains no {message!r}"


@pytest.fixture(scope="module")
def texts():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found |= {text_of(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)}
    return found


@pytest.mark.parametrize("row", rows())
def test_every_row_is_a_refusal(row, texts):
    assert any(says(row, text) for text in texts), f"nothing says {row!r}"
