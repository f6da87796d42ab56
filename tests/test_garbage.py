"""What the collector was told to skip is given back at the end, so that nothing is reported as leaked."""

import gc
import subprocess
import sys

from td3robot.processes import tune_gc

PROGRAM = """
from td3robot.build import robot_spec
from td3robot.processes import tune_gc
from td3robot.config import RobotConfig
from td3robot.robots.toolbox import ToolboxKinematics
held = [ToolboxKinematics(robot_spec(RobotConfig()))]
held.append(held)  # a cycle, as an environment has: only the collector gives it back
{call}
"""


def run(call):
    return subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, text=True)


def test_a_program_that_shortened_its_collections_ends_without_a_word():
    ended = run("tune_gc(); tune_gc()")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_without_it_the_toolbox_s_objects_are_reported_as_leaked():
    """If this fails, nanobind or the toolbox changed, and ``tune_gc`` need not undo anything."""
    assert "leaked" in run("import gc; gc.collect(); gc.freeze()").stderr


def test_what_exists_is_skipped_until_it_is_undone():
    try:
        tune_gc()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
