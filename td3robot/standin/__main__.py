"""Runs a stand-in as a child: one line of JSON on standard input has the settings, and its end ends the stand-in."""

import logging
import os
import sys

from td3robot.errors import Td3RobotError
from td3robot.standin.server import run_standin
from td3robot.standin.settings import StandinConfig


def main() -> None:
    """Read the settings and serve."""
    parent = os.getppid()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as settings:
        config = StandinConfig.model_validate_json(settings.readline())
    try:
        run_standin(config, sys.stdin.fileno(), parent)
    except Td3RobotError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
