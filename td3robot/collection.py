"""Python's garbage collector in a process that controls an arm in real time."""

import atexit
import gc


def shorten_collections() -> None:
    """Collect now, and make later collections skip what exists, so that they are short enough for a control period.

    ``gc.unfreeze`` undoes it. It is also undone when the interpreter exits: objects that the collector skips then are
    never freed, and extension modules (the Robotics Toolbox, by nanobind) report them as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)
