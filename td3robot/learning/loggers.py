"""Services that a training's rows of metrics also go to: Weights & Biases, MLflow.

``metrics.csv`` is the run's own log and has every row. A service gets them in a thread of its own: training never waits
for it, and goes on without it if it fails.
"""

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from time import time
from typing import Any, NamedTuple
from uuid import uuid4

from td3robot import atomic
from td3robot.config import RunConfig
from td3robot.errors import require_extra
from td3robot.format import flat

Values = Mapping[str, float]
# Name of the runs' project where the service's own environment variable gives none.
PROJECT = "td3robot"
# Rows that wait for a service, and how long the end of a training waits for it [s].
MAX_QUEUED, CLOSE_S = 1000, 10.0


class LoggedRun(NamedTuple):
    """A run as a service sees it.

    Attributes:
        directory: The run directory.
        settings: The configuration, flat.
        id: What the service called the run before it was resumed; None in a new run.
    """

    directory: Path
    settings: Mapping[str, Any]
    id: str | None

    @property
    def name(self) -> str:
        """The run's name: its directory's."""
        return self.directory.resolve().name


class Service(ABC):
    """One run at a service, opened when made.

    Attributes:
        id: The service's own name of the run.
    """

    id: str

    @abstractmethod
    def __init__(self, run: LoggedRun) -> None: ...

    @abstractmethod
    def add(self, values: Values, step: int) -> None:
        """Log the values of a step."""

    @abstractmethod
    def close(self) -> None:
        """End the run there."""


class Wandb(Service):
    """Weights & Biases; evaluations end later than they begin, so ``step`` is a value and the x axis of all others."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        if wandb.setup().settings.mode in (None, "online") and not wandb.api.api_key:  # it would ask in the terminal
            raise RuntimeError("nobody is logged in; run wandb login, or set WANDB_MODE=offline")
        self.id = run.id or uuid4().hex[:8]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), id=self.id, resume="allow", name=run.name,
            dir=str(run.directory), config=dict(run.settings), settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self._run.define_metric("*", step_metric="step")

    def add(self, values: Values, step: int) -> None:
        """Log the values of a step."""
        self._run.log({"step": step, **values})

    def close(self) -> None:
        """End the run there."""
        self._run.finish()


class Mlflow(Service):
    """MLflow, at ``MLFLOW_TRACKING_URI``."""

    def __init__(self, run: LoggedRun) -> None:
        from mlflow import MlflowClient, entities

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # a new store reports every table
        self._client, self._metric = MlflowClient(), entities.Metric
        if run.id is not None:
            self.id = run.id
            self._client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self.id = self._client.create_run(experiment, run_name=run.name).info.run_id
        settings = {re.sub(r"[^\w.]+", ".", key): str(value)[:500] for key, value in run.settings.items()}
        params = [entities.Param(key, value) for key, value in settings.items()]
        for first in range(0, len(params), 100):  # as many as a server takes at a time
            self._client.log_batch(self.id, params=params[first : first + 100])

    def add(self, values: Values, step: int) -> None:
        """Log the values of a step."""
        now = int(1000 * time())
        self._client.log_batch(self.id, [self._metric(key, value, now, step) for key, value in values.items()])

    def close(self) -> None:
        """End the run there."""
        self._client.set_terminated(self.id)


# Each is an extra of the same name, and a module.
SERVICES: dict[str, type[Service]] = {"wandb": Wandb, "mlflow": Mlflow}


def require_loggers(config: RunConfig) -> None:
    """Require the packages of a run's loggers.

    Raises:
        MissingExtraError: One is not installed.
    """
    for name in config.training.loggers:
        require_extra(name, f"training.loggers: [{name}]", name)


class Logger:
    """Hands rows to one service, in a thread; a failure is reported once and ends that service's log alone.

    Args:
        name: The service.
        config: The run's configuration.
        directory: The run directory; ``NAME.id`` in it has the service's name of the run, for when it is resumed.
        report: Called with a sentence about a failure, by the thread that adds or closes.
    """

    def __init__(self, name: str, config: RunConfig, directory: Path, report: Callable[[str], None]) -> None:
        self._name, self._report = name, report
        self._settings, self._directory = flat(config.model_dump(mode="json")), directory
        self._queue: Queue[tuple[Values, int] | None] = Queue(MAX_QUEUED)
        self._failure = ""
        self._said = False
        self._thread = Thread(target=self._serve, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def add(self, values: Values, step: int) -> None:
        """Log the finite values of a step, without waiting."""
        if not self._failure:
            try:
                self._queue.put_nowait(({key: value for key, value in values.items() if isfinite(value)}, step))
            except Full:
                self._failure = f"it is {MAX_QUEUED} rows behind"
        self._say()

    def close(self) -> None:
        """Wait for what is still to be logged, not much longer than ``CLOSE_S``."""
        with suppress(Full):
            self._queue.put(None, timeout=CLOSE_S)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive() and not self._failure:
            self._failure = f"it did not take the last rows within {CLOSE_S:g} s"
        self._say()

    def _say(self) -> None:
        if self._failure and not self._said:
            self._said = True
            self._report(
                f"the logger {self._name!r} gets no more rows: {self._failure}; training goes on, and metrics.csv and "
                "evaluations.csv have every row"
            )

    def _serve(self) -> None:
        try:
            service = self._open()
            while (row := self._queue.get()) is not None:
                service.add(*row)
            service.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a service may raise anything
            self._failure = " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _open(self) -> Service:
        path = self._directory / f"{self._name}.id"
        before = path.read_text(encoding="utf-8").strip() if path.is_file() else None
        service = SERVICES[self._name](LoggedRun(self._directory, self._settings, before or None))
        atomic.write_text(path, service.id + "\n")
        return service
