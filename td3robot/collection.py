"""Python's garbage collector beside an arm in real time."""

import atexit
import gc


def shorten_collections() -> None:
    """Collect now, and have later collections skip what exists: they then take no longer than a control period may.

    ``gc.unfreeze`` undoes it. It is undone at the end of the interpreter as well: what the collector skips then is
    never given back, and extension modules (the Robotics Toolbox, by nanobind) report it as leaked.
    """
    gc.collect()
    gc.freeze()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)
