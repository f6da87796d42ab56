"""The loop of a sweep: settings become runs, runs go to a pool, dead ones are resumed, pruned ones are stopped."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from time import sleep
from typing import TypeVar

from td3robot.errors import CheckpointError
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job, Progress, progress, saved_step
from td3robot.sweep.plan import BASE, Overrides, Plan
from td3robot.sweep.pool import Pool
from td3robot.sweep.source import Source

Result = TypeVar("Result")
WAITING, TRAINING, DONE, PRUNED, FAILED = "waiting", "training", "done", "pruned", "failed"
# How often a run whose process died is resumed, and the interval between readings of progress [s].
RESUMES, POLL_INTERVAL_S = 3, 1.0


@dataclass
class Run:
    """One run of a sweep.

    Attributes:
        setting: Number of its setting.
        seed: Its seed.
        job: The job that trains it.
        state: ``waiting``, ``training``, ``done``, ``pruned`` or ``failed``.
        reason: Why it failed.
        resumes: How often its process died and it was resumed.
        progress: Its progress, from its files.
    """

    setting: int
    seed: int
    job: Job
    state: str = WAITING
    reason: str = ""
    resumes: int = 0
    progress: Progress = field(default_factory=Progress)

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.job.directory.name


@dataclass
class Setting:
    """A setting, shared by runs with different seeds.

    Attributes:
        number: Its number in the sweep.
        overrides: How it differs from the sweep's configuration.
        runs: One per seed.
        reported: How many of its evaluations were reported.
    """

    number: int
    overrides: Overrides
    runs: list[Run]
    reported: int = 0

    @property
    def label(self) -> str:
        """The overrides without their sections: ``gamma=0.8, tau=0.01``."""
        pairs = (override.split("=", 1) for override in self.overrides)
        return ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in pairs)


class Sweep:
    """Train every run of a plan.

    Args:
        directory: Absolute path of the directory with the plan and the runs.
        plan: What to train.
        source: Source of the settings.
        pool: Trains the runs.
        show: Called with this sweep whenever it has checked its runs.

    Attributes:
        settings: The settings so far, by number.
        stop_requested: Whether to make every run save and stop.
        stop_reason: Why the sweep stopped by itself, or nothing.
    """

    def __init__(
        self, directory: Path, plan: Plan, source: Source, pool: Pool, show: "Callable[[Sweep], None]"
    ) -> None:
        self.directory, self.plan, self.settings = directory, plan, dict[int, Setting]()
        self.stop_requested, self.stop_reason = False, ""
        self._source, self._pool, self._show = source, pool, show
        self._queue: deque[Run] = deque()
        self._by_job: dict[Job, Run] = {}

    @property
    def runs(self) -> list[Run]:
        """All runs so far."""
        return [run for setting in self.settings.values() for run in setting.runs]

    def add(self, number: int, overrides: Overrides) -> Setting:
        """Add the runs of a setting; those that were already trained to the end are done.

        Raises:
            ConfigError: One was trained with other settings.
        """
        plan, runs = self.plan, []
        for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
            directory = self.directory / f"{number:03d}-seed{seed}"
            run = Run(number, seed, Job(directory, self.directory / BASE, (*overrides, f"seed={seed}")))
            run.progress = progress(directory)
            run.job.require_same_settings()
            if self._is_trained(run):
                run.state = DONE
            runs.append(run)
        self.settings[number] = Setting(number, overrides, runs)
        return self.settings[number]

    def train(self) -> None:
        """Train until every run has ended, or until a stop was requested and every run was saved.

        Raises:
            ConfigError: A run directory contains a run with other settings.
        """
        for number, overrides, over in self._source.known():
            setting = self.add(number, overrides)
            waiting = [run for run in setting.runs if run.state == WAITING]
            if over:
                for run in waiting:
                    run.state = PRUNED
            elif waiting:
                self._queue.extend(waiting)
            else:  # its last runs ended when the source could not be told
                self._report(setting)
                self._finish(setting)
        while True:
            self._collect()
            self._fill()
            for setting in self.settings.values():
                self._update(setting)
            self._show(self)
            if not self._by_job and (self.stop_requested or not self._queue):
                return
            sleep(POLL_INTERVAL_S)

    def request_stop(self) -> None:
        """Make every run save and stop; a repeated call is passed on to them."""
        self.stop_requested = True
        for job in list(self._by_job):
            self._pool.stop(job)

    def _fill(self) -> None:
        """Start as many runs as the pool accepts."""
        while not self.stop_requested and self._pool.free_slots() > 0:
            while not self._queue and (found := self._call_source(self._source.next, None)) is not None:
                self._queue.extend(run for run in self.add(*found).runs if run.state == WAITING)
            if not self._queue:
                return
            self._start(self._queue.popleft())

    def _start(self, run: Run) -> None:
        try:
            self._pool.start(run.job)
        except (CheckpointError, OSError) as error:
            run.state, run.reason = FAILED, f"it cannot be started: {error}"
            self._finish_if_over(self.settings[run.setting])
            return
        run.state = TRAINING
        self._by_job[run.job] = run
        if self.stop_requested:  # meanwhile
            self._pool.stop(run.job)

    def _collect(self) -> None:
        """Record which runs have ended, and how."""
        for job, ending in self._pool.ended():
            run = self._by_job.pop(job)
            self._note(run, ending)
            setting = self.settings[run.setting]
            run.progress = progress(run.job.directory)
            self._report(setting)
            self._finish_if_over(setting)

    def _call_source(self, question: Callable[[], Result], otherwise: Result) -> Result:
        """Call the source; if it cannot write its journal, make every run save and stop."""
        if self.stop_reason:
            return otherwise
        try:
            return question()
        except OSError as error:
            self.stop_reason = f"the search's journal in {self.directory} cannot be written ({error.strerror or error})"
            self.request_stop()
            return otherwise

    def _is_trained(self, run: Run) -> bool:
        """Whether a run was saved at its end, whatever became of its process afterwards."""
        return (saved_step(run.job.directory) or 0) >= self.plan.steps

    def _note(self, run: Run, ending: Ending) -> None:
        if ending.status == 0 or self._is_trained(run):
            run.state = DONE
        elif run.state == PRUNED:
            return
        elif self.stop_requested or ending.status == STOPPED:
            run.state = WAITING
            if not self.stop_requested:  # somebody else stopped it
                run.state, run.reason = FAILED, "it was stopped from outside of the sweep"
        elif ending.died and run.resumes < RESUMES:
            run.resumes += 1
            run.state = WAITING
            self._queue.append(run)
        else:
            run.state, run.reason = FAILED, ending.reason
            if ending.status != REFUSED:
                run.reason += f", {run.resumes + 1} times"

    def _update(self, setting: Setting) -> None:
        """Read the progress of a setting's runs, and end them if the search gives the setting up."""
        active = [run for run in setting.runs if run.state == TRAINING]
        for run in active:
            run.progress = progress(run.job.directory)
        if (
            active
            and self._report(setting)
            and self._call_source(partial(self._source.should_prune, setting.number), False)
        ):
            for run in setting.runs:
                if run.state == TRAINING:
                    self._pool.stop(run.job)
                if run.state in (TRAINING, WAITING):
                    run.state = PRUNED
            self._queue = deque(run for run in self._queue if run.state == WAITING)

    def _report(self, setting: Setting) -> bool:
        """Report the evaluations that all of a setting's runs have, and return whether there are new ones."""
        curves = [run.progress.values for run in setting.runs]
        common = [fmean(values) for values in zip(*curves, strict=False)]
        before, setting.reported = setting.reported, len(common)
        if len(common) == before:
            return False
        self._call_source(partial(self._source.report, setting.number, common), None)
        return True

    def _finish_if_over(self, setting: Setting) -> None:
        if all(run.state not in (WAITING, TRAINING) for run in setting.runs):
            self._finish(setting)

    def _finish(self, setting: Setting) -> None:
        """Report a setting's score to the source."""
        scores = [score for run in setting.runs if (score := run.progress.score) is not None]
        failed = any(run.state == FAILED for run in setting.runs) or not scores
        self._call_source(partial(self._source.finish, setting.number, None if failed else fmean(scores)), None)
