"""A process without open files to spare says so, and not that a package is missing."""

import subprocess
import sys

PROGRAM = """
import os, resource
from td3robot.errors import MissingExtraError, Td3RobotError, require_extra
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
try:
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    require_extra("ur", "driving a UR arm", "no_such_package")
except MissingExtraError:
    print("missing")
except Td3RobotError as error:
    print(error)
"""


def test_no_open_files_is_not_a_missing_extra():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert said == (
        "this program can open no more files (Too many open files); raise the limit, for example with ulimit -n 1024\n"
    )
