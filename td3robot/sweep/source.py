"""Where a sweep's settings come from: a grid, or a search that learns from those before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from td3robot.errors import ConfigError
from td3robot.extras import require_extra
from td3robot.sweep.plan import Choice, Interval, Overrides, Plan, override

JOURNAL = "search.log"


class Source(Protocol):
    """Where settings come from, numbered from 0."""

    def finished(self) -> list[tuple[int, Overrides]]:
        """List the settings that were finished before a sweep was resumed."""

    def next(self) -> tuple[int, Overrides] | None:
        """Return the next setting, an unfinished one first; None where there is none."""

    def judge(self, number: int, values: Sequence[float]) -> bool:
        """Whether a setting is hopeless, by the means over its seeds of the evaluations that all of them have had."""

    def finish(self, number: int, score: float | None) -> None:
        """Note the score of a setting whose runs have ended; None where one failed, to be tried again on resume."""


class Grid:
    """Every combination of the choices, in order."""

    def __init__(self, plan: Plan) -> None:
        self._left = list(enumerate(plan.grid()))

    def finished(self) -> list[tuple[int, Overrides]]:
        """List nothing: whether a run is done, its directory says."""
        return []

    def next(self) -> tuple[int, Overrides] | None:
        """Return the next combination."""
        return self._left.pop(0) if self._left else None

    def judge(self, number: int, values: Sequence[float]) -> bool:
        """Give every combination its chance."""
        return False

    def finish(self, number: int, score: float | None) -> None:
        """Note nothing."""


class Search:
    """Optuna's TPE sampler, which prefers settings like the best so far, and its median pruner.

    A setting is hopeless where an evaluation is worse than the median of the settings before it at the same step,
    from the sixth setting on. What was tried is kept in a journal of the sweep's directory, by which it is resumed.

    Args:
        directory: The sweep's.
        plan: What to vary, and how often.

    Raises:
        MissingExtraError: Optuna is not installed.
        ConfigError: The journal cannot be read.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        require_extra("search", "a search", "optuna")
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._optuna, self._plan = optuna, plan
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(directory / JOURNAL))),
                study_name="sweep",
                direction="maximize",
                load_if_exists=True,
                sampler=optuna.samplers.TPESampler(seed=plan.first_seed),
                pruner=optuna.pruners.MedianPruner(),
            )
            unfinished = [t for t in self._study.trials if not t.state.is_finished()]
        except (KeyError, OSError, ValueError) as error:
            raise ConfigError(f"{directory / JOURNAL} cannot be read: {error}") from None
        self._space = {each.name: self._distribution(each) for each in plan.varied}
        self._again = [(trial.number, self._overrides(trial.params)) for trial in unfinished]
        self._trials = {trial.number: trial._trial_id for trial in unfinished}
        self._pruned: set[int] = set()

    def finished(self) -> list[tuple[int, Overrides]]:
        """List those that the study has a score of."""
        return [(t.number, self._overrides(t.params)) for t in self._study.trials if t.state.is_finished()]

    def next(self) -> tuple[int, Overrides] | None:
        """Return one that was interrupted, or ask for another."""
        if self._again:
            return self._again.pop(0)
        if self._plan.search is None or len(self._study.trials) >= self._plan.search:
            return None
        trial = self._study.ask(self._space)
        self._trials[trial.number] = trial._trial_id
        return trial.number, self._overrides(trial.params)

    def judge(self, number: int, values: Sequence[float]) -> bool:
        """Report the evaluations, and ask the pruner."""
        trial = self._optuna.trial.Trial(self._study, self._trials[number])
        known = self._study.trials[number].intermediate_values
        for index, value in enumerate(values):
            if index not in known:
                trial.report(value, index)
        if values and number not in self._pruned and trial.should_prune():
            self._pruned.add(number)
        return number in self._pruned

    def finish(self, number: int, score: float | None) -> None:
        """Tell the study."""
        state = self._optuna.trial.TrialState
        if number in self._pruned:
            self._study.tell(number, state=state.PRUNED)  # it goes by what was reported
        elif score is not None:
            self._study.tell(number, score, state=state.COMPLETE)

    def _distribution(self, varied: Choice | Interval) -> Any:
        kinds = self._optuna.distributions
        if isinstance(varied, Choice):
            return kinds.CategoricalDistribution(varied.values)
        kind = kinds.IntDistribution if varied.is_whole else kinds.FloatDistribution
        return kind(varied.low, varied.high, log=varied.scale == "log")

    def _overrides(self, params: dict[str, Any]) -> Overrides:
        chosen = {choice.name for choice in self._plan.choices}
        return tuple(f"{name}={value}" if name in chosen else override(name, value) for name, value in params.items())
