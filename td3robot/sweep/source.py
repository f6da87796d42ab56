"""Sources of a sweep's settings: a grid, or a search that learns from earlier settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from td3robot.errors import ConfigError, require_extra
from td3robot.sweep.plan import Choice, Interval, Overrides, Plan, override

JOURNAL = "search.log"


class TrialHistory(NamedTuple):
    """A setting that is known when a sweep begins.

    Attributes:
        number, overrides: Identify the setting.
        over: Whether its training is over.
    """

    number: int
    overrides: Overrides
    over: bool = False


class Source(Protocol):
    """A source of settings, numbered from 0."""

    def known(self) -> list[TrialHistory]:
        """Return the settings that are known when a sweep begins or is resumed."""

    def next(self) -> tuple[int, Overrides] | None:
        """Return the next setting, or None if there is none."""

    def report(self, number: int, values: Sequence[float]) -> None:
        """Record the evaluations of a setting: their means over its seeds, as far as all seeds have them."""

    def should_prune(self, number: int) -> bool:
        """Return whether to stop training a setting."""

    def finish(self, number: int, score: float | None) -> None:
        """Record the score of a setting whose runs have ended; None if one failed, to try it again on resume."""


class Grid:
    """Every combination of the choices, in order; none is pruned."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def known(self) -> list[TrialHistory]:
        """Return all combinations."""
        return [TrialHistory(number, overrides) for number, overrides in enumerate(self._plan.grid())]

    def next(self) -> tuple[int, Overrides] | None:
        """Return None: all are known."""
        return None

    def report(self, number: int, values: Sequence[float]) -> None:
        """Do nothing."""

    def should_prune(self, number: int) -> bool:
        """Return False."""
        return False

    def finish(self, number: int, score: float | None) -> None:
        """Do nothing."""


class Search:
    """Optuna's TPE sampler, which prefers settings like the best so far, and its median pruner.

    Once five settings are complete, a setting is given up if its best evaluation so far is below the median of the
    complete ones at the same evaluation. A journal in the sweep's directory keeps what was tried, for resuming.

    Args:
        directory: The sweep's directory.
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
        self._journal = directory / JOURNAL
        _mend(self._journal)
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(self._journal))),
                study_name="sweep",
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(),
            )
            tried = self._study.trials
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._journal} is damaged ({error}); restore it, or begin a new sweep") from None
        # A new seed after a resume, or the same settings would be tried again.
        self._study.sampler = optuna.samplers.TPESampler(seed=plan.first_seed + len(tried))
        unfinished = [trial for trial in tried if not trial.state.is_finished()]
        self._space = {each.name: self._distribution(each) for each in plan.varied}
        self._trials = {trial.number: trial._trial_id for trial in unfinished}
        self._known = [TrialHistory(t.number, self._overrides(t.params), t.state.is_finished()) for t in tried]
        self._pruned: set[int] = set()

    def known(self) -> list[TrialHistory]:
        """Return the settings that were tried before; some may have been interrupted."""
        return self._known

    def next(self) -> tuple[int, Overrides] | None:
        """Return the sampler's next setting.

        Raises:
            ConfigError: The journal does not match the settings to vary.
        """
        if self._plan.search is None or len(self._study.trials) >= self._plan.search:
            return None
        try:
            trial = self._study.ask(self._space)
        except ValueError as error:
            raise ConfigError(f"{self._journal} does not fit the sweep's plan: {error}") from None
        self._trials[trial.number] = trial._trial_id
        return trial.number, self._overrides(trial.params)

    def report(self, number: int, values: Sequence[float]) -> None:
        """Report the evaluations to the study."""
        trial = self._optuna.trial.Trial(self._study, self._trials[number])
        known = self._study.trials[number].intermediate_values
        for index, value in enumerate(values):
            if index not in known:
                trial.report(value, index)

    def should_prune(self, number: int) -> bool:
        """Return whether the pruner gives the setting up."""
        if self._optuna.trial.Trial(self._study, self._trials[number]).should_prune():
            self._pruned.add(number)
        return number in self._pruned

    def finish(self, number: int, score: float | None) -> None:
        """Report the score to the study."""
        state = self._optuna.trial.TrialState
        if number in self._pruned:
            self._study.tell(number, state=state.PRUNED)  # the study uses the reported values
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


def _mend(journal: Path) -> None:
    """Drop the last line of a journal if a crash or a full disk tore it."""
    if journal.is_file():
        whole, newline, torn = journal.read_bytes().rpartition(b"\n")
        if torn:
            journal.write_bytes(whole + newline)
