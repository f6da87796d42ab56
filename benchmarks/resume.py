"""Time saving and resuming a run whose replay holds a million transitions of the reach task."""

import json
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from td3robot.config import load_config
from td3robot.learning.replay import Transition
from td3robot.learning.runs import make_trainer
from td3robot.policy import checkpoint

TRANSITIONS = 1_000_000


class Silent:
    """A listener that says nothing."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Ignore."""

    def evaluated(self, step: int, evaluation: object) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Print, since it is a failure."""
        print(text)


def main() -> None:
    """Fill, save, resume, and print the figures."""
    root = Path(__file__).parent.parent
    config = load_config(
        root / "configs/ur5e_reach_quick.yaml", [f"agent.replay_capacity={TRANSITIONS}", "training.environments=1"]
    )
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory)
        trainer = make_trainer(config, run, Silent())
        rng = np.random.default_rng(0)
        sizes = trainer.contract.observation.size, trainer.contract.action.size
        for _ in range(TRANSITIONS):
            observation = rng.standard_normal(sizes[0])
            trainer.replay.add([Transition(observation, np.zeros(sizes[1]), 0.0, observation, False, 0.9)])
        start = perf_counter()
        trainer.save()
        saving = perf_counter() - start

        fresh = make_trainer(config, run, Silent())
        start = perf_counter()
        saved = checkpoint.newest(run)
        fresh.resume(saved)
        resuming = perf_counter() - start
        print(json.dumps({"save_s": saving, "resume_s": resuming, "bytes": saved.bytes, "rows": fresh.replay.size}))


if __name__ == "__main__":
    main()
