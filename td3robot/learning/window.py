"""What happened since the last row of metrics; saved with a run, so that a resumed one writes the same rows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from td3robot.learning.environments import Step

Losses = dict[str, torch.Tensor]


class StepAverages:
    """Means over the steps since the last log row; ``names`` are reported even if nothing adds to them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.steps = 0
        self.sums: defaultdict[str, float] = defaultdict(float, dict.fromkeys(names, 0.0))

    def add(self, steps: Sequence[Step]) -> None:
        """Add steps."""
        if not steps:
            return
        self.steps += len(steps)
        sizes = np.abs([step.action for step in steps])
        self.sums["action/mean_abs"] += float(sizes.mean(axis=1).sum())
        self.sums["action/saturated"] += float((sizes > 0.99).mean(axis=1).sum())
        for step in steps:
            for name, value in step.reward_terms.items():
                self.sums[f"reward/{name}"] += value
            for reason in step.interventions:
                self.sums[f"guard/{reason}"] += 1.0

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the steps added."""
        return {name: value / max(self.steps, 1) for name, value in self.sums.items()}


class Window:
    """Episodes and losses since the last row of metrics. A figure with a new name becomes a column of its own.

    Attributes:
        finished: Figures of each episode that ended, by name.
        losses: Metrics of the learner's updates, by name, on its device.
    """

    def __init__(self) -> None:
        self.finished: list[dict[str, float]] = []
        self.losses: list[Losses] = []

    def figures(self) -> dict[str, float]:
        """Return the means, by column name of the row."""
        row: dict[str, float] = {}
        for name in self.finished[0] if self.finished else ():
            row[f"episode/{name}"] = float(np.mean([episode[name] for episode in self.finished]))
        for name in self.losses[0] if self.losses else ():
            row[f"learner/{name}"] = float(torch.stack([loss[name] for loss in self.losses]).mean())
        return row

    def state(self, averages: StepAverages) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, including the step averages; names are numbered to keep their order."""
        arrays = {"steps": np.array([averages.steps], np.int64)}
        for index, (name, value) in enumerate(averages.sums.items()):
            arrays[f"sum.{index:03d}.{name}"] = np.array([value])
        for index, name in enumerate(self.finished[0] if self.finished else ()):
            arrays[f"episode.{index:03d}.{name}"] = np.array([episode[name] for episode in self.finished], np.float64)
        for index, name in enumerate(self.losses[0] if self.losses else ()):
            values = torch.stack([loss[name] for loss in self.losses])
            arrays[f"loss.{index:03d}.{name}"] = values.detach().cpu().numpy()
        return arrays

    def load_state(self, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> StepAverages:
        """Restore what :meth:`state` returned, and return the step averages."""
        episodes = {name: values.tolist() for name, values in _numbered("episode", arrays)}
        self.finished = _rows(episodes)
        self.losses = _rows({name: torch.from_numpy(values).to(device) for name, values in _numbered("loss", arrays)})
        averages = StepAverages()
        averages.steps = int(arrays["steps"][0])
        for name, value in _numbered("sum", arrays):
            averages.sums[name] = float(value[0])
        return averages


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return columns of the same length row by row."""
    count = min(map(len, columns.values()), default=0)
    return [{name: values[index] for name, values in columns.items()} for index in range(count)]


def _numbered(kind: str, arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, NDArray[Any]]]:
    """Return the arrays of a kind with their names, in the order of their numbers."""
    found = [name for name in sorted(arrays) if name.startswith(f"{kind}.")]
    return [(name.split(".", 2)[2], arrays[name]) for name in found]
