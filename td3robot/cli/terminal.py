"""Output of the command line: results on standard output (text, or one JSON object), all else on standard error."""

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from td3robot.config import RunConfig
from td3robot.errors import Td3RobotError
from td3robot.format import flat, plain
from td3robot.policy.contract import Contract
from td3robot.processes import STOP_SIGNALS

if TYPE_CHECKING:
    from td3robot.envs.playing import Evaluation
    from td3robot.learning.trainer import Trainer


class LastingConsole(Console):
    """A console that goes silent when its reader or terminal is gone, instead of ending the program."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; once the terminal was closed, do nothing.

        Results that cannot be written otherwise are an error: a full disk would leave half of them in a file.

        A signal may come while something is printed, and its handler prints as well. Python refuses to write within a
        write to the same stream; then the text is written to the descriptor.
        """
        try:
            super().print(*objects, **options)
        except OSError as error:
            if not self.stderr and error.errno not in READER_GONE:
                _refuse_output(error)
            self.quiet = True
        except RuntimeError as error:
            if "reentrant call" not in str(error):
                raise
            with suppress(OSError):
                os.write(self.file.fileno(), " ".join(map(str, objects)).encode() + b"\n")

    def say(self, text: str) -> None:
        """Print a line of text as it is, however long."""
        self.print(text, markup=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Stop printing instead of ending the program."""
        self.quiet = True


def error_sentence(error: Exception) -> str | None:
    """Return the sentence of an error that a user can cause; None for a fault of this program."""
    if isinstance(error, Td3RobotError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name is not None and not error.name.startswith("td3robot"):
        return f"this command needs the package {error.name}, which is not installed; td3robot doctor says how"
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename}" if error.filename else str(error.strerror or error)
    return None


def say_error(sentence: str) -> None:
    """Print why a command failed."""
    stderr.print(f"td3robot: {sentence}", style="red", markup=False, soft_wrap=True)


# Nobody reads what is written any more: a pipe or a terminal was closed.
READER_GONE = (errno.EPIPE, errno.EIO)
stderr = LastingConsole(stderr=True, highlight=False)
stdout = LastingConsole(highlight=False)


def results(as_json: bool) -> LastingConsole:
    """Return the console for results as text: standard error if standard output has JSON."""
    return stderr if as_json else stdout


STDOUT, STDERR = 1, 2  # descriptors
# What a training says to the first and the second signal that asks it to stop.
STOPPING = (
    "stopping after this step; saving",
    "giving up the environment's step, where it has not ended; saving (once more ends this process without)",
)
# Speeds of a full action in words, by their names in a contract.
SPEEDS = {
    "tcp_m_s": "tool {:.3g} m/s", "tcp_m_s_at_home": "tool {:.3g} m/s at home", "joint_rad_s": "joints {:.3g} rad/s",
    "joint_rad_s_at_home": "joints {:.3g} rad/s at home", "turn_rad_s": "turn {:.3g} rad/s",
}  # fmt: skip


class ProgressListener:
    """A progress bar on a terminal, or one line per evaluation elsewhere."""

    def __init__(self, total: int, done: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} steps/s"), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
            console=stderr, disable=not stderr.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("training", total=total, completed=done, rate="-", last="")

    def __enter__(self) -> "ProgressListener":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal was closed
            self._bar.stop()

    def progress(self, step: int, steps_per_second: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step, rate=f"{steps_per_second:.0f}")

    def evaluated(self, step: int, evaluation: "Evaluation") -> None:
        """Show the last evaluation."""
        success = "" if evaluation.success_rate is None else f"success {evaluation.success_rate:.0%}, "
        text = f"{success}return {evaluation.mean_return:.1f}"
        self._bar.update(self._task, completed=step, last=text)
        if not stderr.is_terminal:
            stderr.print(f"step {step}: {text}")

    def message(self, text: str) -> None:
        """Print a line above the bar."""
        stderr.say(f"td3robot: {text}")


def announce_speeds(contract: Contract) -> None:
    """Print the speeds of a full action and of the guard's limits."""
    terms = contract.terms
    if "guard" not in terms:
        return
    speeds = ", ".join(
        SPEEDS.get(name, f"{name} {{:.3g}}").format(value) for name, value in terms["action"]["implied_speeds"].items()
    )
    joint_limit = terms["guard"]["joint_speed_fraction"] * max(terms["robot"]["velocity_rad_s"])
    stderr.say(
        f"full action: {speeds}; the guard keeps the tool below {terms['guard']['max_tcp_speed_m_s']:g} m/s and joints "
        f"below {joint_limit:.3g} rad/s"
    )


def note_differences(here: Contract, trained: Contract) -> None:
    """Print every term of a policy's contract that differs from its training."""
    for name, mine, theirs in here.differences(trained):
        stderr.say(f"note: {name} is {plain(mine)} here and was {plain(theirs)} in training")


def announce_run(config: RunConfig, step: int, device: str, run: str) -> None:
    """Print what is about to be trained, and from which step to which."""
    stderr.say(
        f"{config.name}: seed {config.seed}, step {step} of {config.training.steps}, "
        f"{config.training.environments} environment{'s' * (config.training.environments > 1)}, learner on {device}, "
        f"run in {run}"
    )


def show_table(figures: dict[str, Any], title: str) -> None:
    """Print nested figures as a table of dotted names."""
    stdout.say(title)
    table = Table(show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in flat(figures).items():
        table.add_row(name, plain(value))
    stdout.print(table)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and yield the function that updates it."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=stderr, disable=not stderr.is_terminal, transient=True,
    )  # fmt: skip
    task = bar.add_task(what, total=total)
    with bar:
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def stray_output_to_stderr() -> Iterator[None]:
    """Redirect what environments and libraries print to standard error; standard output is for figures."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)


def print_json(figures: dict[str, Any]) -> None:
    """Print one JSON object, alone on standard output."""
    write_result(json.dumps(figures, allow_nan=False))


def write_result(text: str) -> None:
    """Write a text and the end of its line to standard output; do nothing if its reader is gone.

    Raises:
        Td3RobotError: It cannot be written.
    """
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in READER_GONE:
            _refuse_output(error)
        _discard_output()


def _refuse_output(error: OSError) -> NoReturn:
    _discard_output()
    raise Td3RobotError(
        f"standard output cannot be written ({error.strerror}), so results are missing there; write it elsewhere"
    ) from None


def _discard_output() -> None:
    """Discard what Python still has for standard output, which would fail again at its end."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123  # no path in this program
        os.dup2(nowhere.fileno(), STDOUT)


def open_closed_streams() -> None:
    """Open what this process was started without (``>&-``): a file would take its descriptor, and get what is printed.

    Results that nobody can get are worth a note. A path that is no text in the terminal's encoding is printed escaped.
    """
    for number in (0, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # lasts as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        stderr.say("td3robot: standard output is closed, so results are not printed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def signals_call(handle: Callable[[], None]) -> Iterator[None]:
    """Make every signal that asks this process to stop call a function instead.

    A signal that this process ignores, such as SIGHUP under ``nohup``, stays ignored.
    """
    previous = {number: signal.signal(number, lambda *_: handle()) for number in _handled_signals()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals(trainer: "Trainer") -> Iterator[None]:
    """Make the first signal stop a training after its step, the second abandon the step, the third end the process."""
    received = 0

    def handle() -> None:
        """Print what this signal does, and do it."""
        nonlocal received
        received += 1
        if received == len(STOPPING):
            for number in _handled_signals():
                signal.signal(number, signal.SIG_DFL)
        trainer.listener.message(STOPPING[received - 1])
        trainer.request_stop()

    with signals_call(handle):
        yield


def _handled_signals() -> list[signal.Signals]:
    return [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
