"""What a page is made of, and the page as one HTML file that needs no network, written whole or not at all."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from td3robot.atomic import Replacement
from td3robot.errors import Td3RobotError
from td3robot.format import UNITS

# Levels of badges and verdicts.
GOOD, ATTENTION, BAD, NEUTRAL = "good", "attention", "bad", "neutral"
# Marks a file as a report, which may be overwritten.
MARK = "td3robot report"
GENERATOR = f'<meta name="generator" content="{MARK}">'
# A number and its unit stay on one line.
BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:{'|'.join(map(re.escape, UNITS))})(?![\w/]))")


class ReportError(Td3RobotError):
    """A report that cannot be made or written."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; its ``style`` may be ``note``, for less important text, or ``warning``."""

    kind: ClassVar = "text"
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Badge:
    """A word with a colour, in a table's cell."""

    text: str
    level: str


@dataclass(frozen=True, slots=True)
class Link:
    """A relative link, in a table's cell."""

    text: str
    href: str


Cell = str | Badge | Link


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        wide: Columns whose text may wrap; the others keep to one line.
    """

    kind: ClassVar = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    wide: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """One interactive plot: data and layout as plotly takes them; colours are names of CSS variables.

    Attributes:
        group: Plots of one group zoom together along their time axes.
    """

    kind: ClassVar = "plot"
    title: str
    figure: dict[str, Any]
    caption: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots side by side, as many in a row as the screen takes, under one legend of (text, CSS variable)."""

    kind: ClassVar = "plots"
    plots: Sequence[Plot]
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    kind: ClassVar = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Sentences:
    """A list of sentences."""

    kind: ClassVar = "sentences"
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown when asked for."""

    kind: ClassVar = "fold"
    title: str
    blocks: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Film:
    """A film inside the page."""

    kind: ClassVar = "film"
    source: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it."""

    title: str
    blocks: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure, large."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out, in one sentence."""

    level: str
    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page."""

    kicker: str
    title: str
    verdict: Verdict
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    made_from: str


def render(page: Page) -> str:
    """Return the page as HTML: everything inline, and a content security policy that allows nothing else."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = files("td3robot.report") / "templates"
    scripts = [_plotly()] if _has_plots(page.sections) else []
    scripts.append(templates.joinpath("page.js").read_text(encoding="utf-8"))
    environment = Environment(
        loader=PackageLoader("td3robot.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_finalized,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.get_template("page.html").render(
        page=page,
        style=templates.joinpath("page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        digests=[_digest(script) for script in scripts],
        mark=MARK,
        made_with=f"td3robot {version('td3robot')}",
    )


def write_page(page: Page, out: Path, force: bool = False) -> None:
    """Write a page under a temporary name, and rename it.

    Raises:
        ReportError: There is something else of that name, or it cannot be written; nothing was changed.
    """
    require_writable(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with Replacement(out) as temporary:
            temporary.write_text(render(page), encoding="utf-8", errors="backslashreplace")  # paths may be no text
    except OSError as error:
        raise ReportError(f"{out} cannot be written ({error.strerror}); choose another place with --out") from None


def require_writable(out: Path, force: bool) -> None:
    """Refuse to overwrite what is no report.

    Raises:
        ReportError: Naming the file.
    """
    if out.is_dir():
        raise ReportError(f"{out} is a folder; give the name of a file, for example {out / 'report.html'}")
    if force or not out.exists():
        return
    with out.open("rb") as file:
        if GENERATOR.encode() not in file.read(4096):
            raise ReportError(f"{out} exists and is no report of td3robot; choose another --out, or give --force")


def _finalized(value: Any) -> Any:
    """Keep a number and its unit on one line, where the text is not markup already."""
    return BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", value) if type(value) is str else value


@cache
def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        raise ReportError(
            "the package plotly is not installed here, as on a robot's computer: copy the folder to a computer where "
            "all of td3robot is installed"
        ) from None

    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _digest(script: str) -> str:
    """Return the hash by which the page's content security policy allows a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _has_plots(blocks: Any) -> bool:
    return any(
        getattr(block, "kind", "") in ("plot", "plots") or _has_plots(getattr(block, "blocks", ())) for block in blocks
    )
