"""Nothing compiles while an arm moves: building its environment has compiled what a control period computes."""

import subprocess
import sys

# Other tests compile, too, so this needs a process of its own. A policy's actions and the guard's commands may be
# read-only arrays, which numba takes for another type.
PROGRAM = """
import sys
from pathlib import Path

import numpy as np
from numba.core import event

from td3robot.build import _compile_kernels, make_robot_env
from td3robot.config import load_config

config = load_config(Path(sys.argv[1])).environment
_compile_kernels(config)
environment, rng = make_robot_env(config), np.random.default_rng(0)
with event.install_recorder("numba:compile") as recorder:
    environment.reset(seed=0)
    for step in range(60):
        action = rng.uniform(-1.0, 1.0, environment.action_space.shape).astype(np.float32)
        action[-1] = 1.0
        action.setflags(write=False)
        environment.preview(action)
        environment.step(action)
        if step % 20 == 0:
            environment.drive(environment.guard.commanded)
            environment.resume()
print([each.data["dispatcher"].py_func.__name__ for _, each in recorder.buffer])
"""


def test_nothing_compiles_once_an_environment_is_ready():
    run = subprocess.run([sys.executable, "-c", PROGRAM, "ur5e_grasp"], capture_output=True, text=True, check=False)
    assert run.stdout == "[]\n", run.stderr
