"""The plan of a sweep: what it varies, and the resulting settings."""

import json
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Literal, Self

from pydantic import PositiveInt, ValidationError, model_validator

from td3robot.config import RunConfig
from td3robot.config.loading import explain, parse_config, to_yaml
from td3robot.config.plain import parse_plain
from td3robot.config.section import Section
from td3robot.errors import ConfigError
from td3robot.format import shell

PLAN, BASE = "sweep.yaml", "config.yaml"
# Largest number of runs; a grid with more is probably a mistake.
MAX_RUNS = 1_000
# A search's combinations of extreme values are checked up to this many; beyond that, each extreme is checked alone.
MAX_EXTREMES = 256

Overrides = tuple[str, ...]


class Choice(Section):
    """Values that a setting takes in turn.

    Attributes:
        name: The setting, as ``section.key``.
        values: Its values, as given to ``--set``.
    """

    name: str
    values: tuple[str, ...]


class Interval(Section):
    """A range in which a search tries values of a setting.

    Attributes:
        name: The setting, as ``section.key``.
        low, high: The ends, inclusive. Two whole numbers make a range of whole numbers.
        scale: ``log`` samples as often between 1 and 10 as between 10 and 100.
    """

    name: str
    low: int | float
    high: int | float
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"the range of {self.name} is empty: {self.low} is not below {self.high}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"the range of {self.name} begins at {self.low}, and on a log scale it must be above 0")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Plan(Section):
    """What a sweep trains.

    Attributes:
        seeds: Runs per setting, with the configuration's seed and those that follow it.
        choices: The settings that vary over a grid, or among which a search chooses.
        intervals: The settings that a search varies.
        search: How many combinations a search tries; by default, every combination of ``choices`` is trained.
        steps: Environment steps per run.
        first_seed: The seed of the first run of each setting.
    """

    seeds: PositiveInt = 1
    choices: tuple[Choice, ...] = ()
    intervals: tuple[Interval, ...] = ()
    search: PositiveInt | None = None
    steps: PositiveInt
    first_seed: int

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        names = [each.name for each in self.varied]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is varied twice; give all of its values in one option")
            if name in ("seed", "name", "training.steps"):
                raise ValueError(f"{name} cannot be varied; use --seeds, or --set for all runs")
            if "." not in name:
                raise ValueError(f"{name} is no setting; write it as section.key")
        for choice in self.choices:
            for value in choice.values:
                if choice.values.count(value) > 1:
                    raise ValueError(f"{choice.name} has the value {value} twice; give each value once")
                if value.startswith("{"):
                    raise ValueError(f"{choice.name}={value} is a whole section; vary one setting of it")
        if self.intervals and self.search is None:
            raise ValueError("--range needs --search N, which says how many settings to try")
        if self.search is not None and not names:
            raise ValueError("--search needs something to vary: --range section.key=low:high, or --grid")
        if (runs := self.seeds * self.settings) > MAX_RUNS:
            raise ValueError(f"this sweep has {runs:,} runs, more than {MAX_RUNS:,}; give fewer values or seeds")
        return self

    @property
    def varied(self) -> list[Choice | Interval]:
        """All varied settings."""
        return [*self.choices, *self.intervals]

    @property
    def settings(self) -> int:
        """Number of combinations that are trained."""
        if self.search is not None:
            return self.search
        return prod(len(choice.values) for choice in self.choices)

    def grid(self) -> list[Overrides]:
        """Return every combination of the choices, as given to ``--set``."""
        names = [choice.name for choice in self.choices]
        return [
            tuple(f"{name}={value}" for name, value in zip(names, values, strict=True))
            for values in product(*(choice.values for choice in self.choices))
        ]

    def extremes(self) -> list[Overrides]:
        """Return the settings to check before anything starts: the whole grid, or the extremes of a search."""
        if self.search is None:
            return self.grid()
        ends = [[f"{each.name}={value}" for value in each.values] for each in self.choices]
        ends += [[override(each.name, value) for value in (each.low, each.high)] for each in self.intervals]
        if prod(map(len, ends)) <= MAX_EXTREMES:
            return list(product(*ends))
        return [(end,) for each in ends for end in each]


def parse_choice(text: str) -> Choice:
    """Parse ``section.key=value,value``; lists are written as in YAML: ``agent.hidden=[64,64],[128,128]``.

    Raises:
        ConfigError: The text has another form.
    """
    name, text = _split(text, "--grid", "section.key=value,value")
    values, depth, quote = [""], 0, ""
    for letter in text:
        if letter in ("'", '"') and quote in ("", letter):
            quote = "" if quote else letter
        if not quote:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0 and not quote:
            values.append("")
        else:
            values[-1] += letter
    values = [value.strip() for value in values]
    if depth != 0 or quote or not all(values):
        raise ConfigError(f"--grid {name}: {text[:200]!r} is no list of values; write them as value,value")
    return Choice(name=name, values=tuple(values))


def parse_interval(text: str) -> Interval:
    """Parse ``section.key=low:high`` or ``section.key=low:high:log``.

    Raises:
        ConfigError: The text has another form, or the range is empty.
    """
    name, values = _split(text, "--range", "section.key=low:high or section.key=low:high:log")
    low, *rest = values.split(":")
    high, *scale = rest or [""]
    try:
        ends = [_number(low), _number(high)]
        if scale not in ([], ["log"]):
            raise ValueError
    except ValueError:
        raise ConfigError(f"--range {name}: {values[:200]!r} is not low:high or low:high:log, two numbers") from None
    try:
        return Interval(name=name, low=ends[0], high=ends[1], scale="log" if scale else "linear")
    except ValidationError as error:
        raise ConfigError(f"--range: {explain(error, Interval, {})}") from None


def make_plan(base: RunConfig, seeds: int, choices: list[str], intervals: list[str], search: int | None) -> Plan:
    """Return the plan of a sweep from the arguments of the command line.

    Raises:
        ConfigError: It cannot be carried out.
    """
    values = {
        "seeds": seeds,
        "choices": [parse_choice(text) for text in choices],
        "intervals": [parse_interval(text) for text in intervals],
        "search": search,
        "steps": base.training.steps,
        "first_seed": base.seed,
    }
    try:
        return Plan.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, Plan, values)) from None


def write_plan(directory: Path, plan: Plan, base: RunConfig) -> None:
    """Check every setting, then write the plan and the configuration that it varies into a new directory.

    Raises:
        ConfigError: A setting cannot be trained, or the directory is in use.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        resumable = f"resume it with --resume {shell(directory)}, or " if (directory / PLAN).is_file() else ""
        raise ConfigError(f"{directory} exists and is not empty; {resumable}choose another --out")
    texts = {BASE: to_yaml(base), PLAN: json.dumps(plan.model_dump(mode="json"), indent=2) + "\n"}
    require_valid(plan, base)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def read_plan(directory: Path) -> Plan:
    """Read the plan of a sweep.

    Raises:
        ConfigError: The directory has none, or it is damaged.
    """
    path = directory / PLAN
    for name in (PLAN, BASE):
        if not (directory / name).is_file():
            raise ConfigError(f"{directory} holds no {name}; give the directory of a sweep")
    try:
        values = parse_plain(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("holds no mapping; it is damaged")
        return Plan.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, Plan, values)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no UTF-8 text; it is damaged") from None
    except ValueError as error:
        raise ConfigError(f"{path} {error}") from None


def require_valid(plan: Plan, base: RunConfig) -> None:
    """Refuse a plan with a setting that cannot be trained, before training anything.

    Raises:
        ConfigError: Naming the setting, and what is wrong with it.
    """
    text = to_yaml(base)
    last_seed = f"seed={plan.first_seed + plan.seeds - 1}"
    for overrides in plan.extremes():
        parse_config(text, "the sweep's configuration", (*overrides, last_seed))


def override(name: str, value: int | float) -> str:
    """Return an override for ``--set``, with four significant digits."""
    return f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"


def _split(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not (name.strip() and equals and values.strip()):
        raise ConfigError(f"{option} {text!r} is not of the form {form}")
    return name.strip(), values.strip()


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not isfinite(number):
        raise ValueError
    return number
