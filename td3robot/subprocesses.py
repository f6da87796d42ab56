"""Child processes that import what this one does."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def start_python(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start this interpreter with exactly this process's import path; the child adds no directory of its own.

    The child has a session of its own, which a Ctrl-C at the terminal does not reach: it is this process that decides
    what is to end, and when.

    Args:
        arguments: Those of the interpreter.
        **options: Those of :class:`subprocess.Popen`.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
        **options,
    )
