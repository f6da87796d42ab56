"""What a page is made of: plain values that one template lays out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# How good something is; a page says it in words as well as in colour.
GOOD, ATTENTION, BAD, NEUTRAL = "good", "attention", "bad", "neutral"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; a ``note`` stands back, a ``warning`` stands out."""

    text: str
    style: str = ""
    kind: str = field(default="text", init=False)


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table; cells are texts, badges or links.

    Attributes:
        wide: Columns whose text may wrap; the others keep to one line.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str | Badge | Link]]
    wide: Sequence[int] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Plot:
    """One interactive plot: data and layout as plotly takes them; colours are names of CSS variables.

    Attributes:
        group: Plots of one group zoom together along their time axes.
    """

    title: str
    figure: dict[str, Any]
    caption: str = ""
    group: str = ""
    kind: str = field(default="plot", init=False)


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots side by side, as many in a row as the screen takes, under one legend of (text, CSS variable)."""

    plots: Sequence[Plot]
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""
    kind: str = field(default="plots", init=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    pairs: Sequence[tuple[str, str]]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True, slots=True)
class Sentences:
    """A list of sentences."""

    sentences: Sequence[str]
    kind: str = field(default="sentences", init=False)


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown when asked for."""

    title: str
    blocks: Sequence[Any]
    kind: str = field(default="fold", init=False)


@dataclass(frozen=True, slots=True)
class Film:
    """A film inside the page."""

    source: str
    caption: str
    kind: str = field(default="film", init=False)


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
