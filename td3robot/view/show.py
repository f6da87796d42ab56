"""Shows a source on a page, at the source's own pace."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple

from td3robot.errors import ConfigError, Td3RobotError
from td3robot.format import guard_reason
from td3robot.metrics import Chart
from td3robot.view.source import Snapshot, Source, Workcell

# How often curves and words are redrawn [s].
CHARTS_S, WORDS_S = 2.0, 0.2
# Pause before polling a source again that has nothing new, or whose page has no viewer [s].
IDLE_S = 0.05
# Shortest time between drawn frames [s].
FRAME_S = 1.0 / 30.0
# Largest delay that is caught up with [s].
LATE_S = 0.25


class UiEvent(NamedTuple):
    """An action of the user on the page: one of :data:`~td3robot.view.source.ACTIONS`, with its value."""

    action: str
    value: Any = None


class Page(ABC):
    """A page that shows a source. All calls come from one thread, and none waits long for a browser."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address."""

    @property
    @abstractmethod
    def ports(self) -> Sequence[int]:
        """The ports to forward to see it from elsewhere."""

    @property
    @abstractmethod
    def watched(self) -> bool:
        """Whether anybody is watching."""

    @abstractmethod
    def build(self, workcell: Workcell) -> None:
        """Show the workcell."""

    @abstractmethod
    def draw(self, snapshot: Snapshot) -> None:
        """Show a moment."""

    @abstractmethod
    def write(self, lines: Iterable[str]) -> None:
        """Show lines of text."""

    @abstractmethod
    def plot(self, charts: list[Chart]) -> None:
        """Show curves."""

    @abstractmethod
    def events(self) -> list[UiEvent]:
        """Return the user's actions since the last call."""

    def seek(self, position: int, length: int) -> None:  # noqa: B027  # not every page has a slider for it
        """Show the position in a record."""

    def playing(self, playing: bool) -> None:  # noqa: B027  # not every page can pause
        """Show whether it plays or pauses."""

    @abstractmethod
    def refuse(self, sentence: str) -> None:
        """Show an error message."""

    @abstractmethod
    def close(self) -> None:
        """End the page. May be repeated."""


class Show:
    """A source on a page.

    Args:
        source: The source to show.
        page: The page to show it on.
        clock, wait: Clock and sleep function that set the pace.
    """

    def __init__(
        self,
        source: Source,
        page: Page,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._source, self._page, self._clock, self._wait = source, page, clock, wait
        self._workcell: Workcell | None = None
        self._snapshot: Snapshot | None = None
        self._playing, self._steps, self._speed = True, 0, 1.0
        self._due = clock()
        self._drawn = self._due - FRAME_S
        self._plotted = self._written = -CHARTS_S

    def run(self, over: Callable[[], bool]) -> None:
        """Show until ``over`` returns True."""
        while not over():
            self.tick()

    def tick(self) -> None:
        """Handle the page's events, and show one moment."""
        for event in self._page.events():
            try:
                self._do(event)
            except ConfigError as error:
                self._page.refuse(str(error))
        if not self._page.watched:
            self._due = self._clock() + IDLE_S
        else:
            self._show()
        self._wait(max(0.0, min(self._due - self._clock(), IDLE_S)))

    def _show(self) -> None:
        now = self._clock()
        self._build()
        if now >= self._due and (self._playing or self._steps):
            self._advance(now)
        elif not self._playing and not self._steps:
            self._due = now + IDLE_S
        if now - self._written >= WORDS_S:
            self._written = now
            caption = self._snapshot.caption if self._snapshot is not None else ()
            self._page.write([*caption, *([self._source.status] if self._source.status else [])])
            self._page.seek(self._source.position, self._source.length)
        if now - self._plotted >= CHARTS_S:
            self._plotted = now
            self._page.plot(self._source.charts())

    def _build(self) -> None:
        """Build the page once the workcell is known."""
        workcell = self._source.workcell
        if workcell is not None and workcell is not self._workcell and self._workcell is None:
            self._workcell = workcell
            self._page.build(workcell)

    def _advance(self, now: float) -> None:
        try:
            snapshot = self._source.advance()
        except Td3RobotError as error:
            self._source.status = str(error)
            self._page.refuse(str(error))
            self._pause(True)
            return
        if snapshot is None:
            self._due = now + IDLE_S
            return
        self._snapshot = snapshot
        self._build()
        if self._steps:
            self._steps -= 1
        lasts = snapshot.lasts_s / self._speed
        is_late = now - self._due > LATE_S
        self._due = (now if is_late else self._due) + lasts
        if snapshot.begins or now - self._drawn >= FRAME_S or not self._playing:
            self._drawn = now
            self._page.draw(snapshot)

    def _do(self, event: UiEvent) -> None:
        source = self._source
        match event.action:
            case "play":
                self._pause(self._playing)
            case "step":
                self._pause(True)
                self._steps += 1
                self._due = self._clock()
            case "speed":
                self._speed = float(event.value)
            case "next":
                source.next_episode()
                self._due = self._clock()
            case "goal":
                source.set_goal(event.value)
                self._pause(False)
            case "act":
                source.choose_controller(event.value)
            case "jog":
                source.jog(*event.value)
                self._pause(False)
            case "seek":
                source.seek(int(event.value))
                self._steps = 0 if self._playing else 1
                self._due = self._clock()

    def _pause(self, pause: bool) -> None:
        self._playing = not pause
        self._due = self._clock()
        self._page.playing(self._playing)


def guard_line(reasons: Iterable[str]) -> str:
    """Write what the guard did in a control period."""
    limits = [guard_reason(reason) for reason in reasons]
    return f"Guard: **held back** by {', '.join(limits)}" if limits else "Guard: lets it through"
