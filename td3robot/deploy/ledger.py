"""Records which stages a checkpoint has climbed on a robot, and which robots are driven or await their operator.

The ledger belongs to the robots, not to a folder of records: a fault is known from another folder, in another terminal,
on another day. A program that will move a robot records that first, so that the robot stays latched if the program
dies.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from td3robot import atomic, locks
from td3robot.errors import Td3RobotError, remedy
from td3robot.policy.checkpoint import MANIFEST

STAGES = ("check", "shadow", "confirm", "run")
# After a damaged ledger was set aside: the entry of every robot that has none of its own yet.
UNKNOWN = "any other"


class LadderError(Td3RobotError):
    """The stage below is missing, or a fault is pending."""


class DamagedLedgerError(LadderError):
    """A ledger was read, and is none."""


def digest_of(checkpoint: Path) -> str:
    """Return the identity of a checkpoint: the SHA-256 of its manifest, which has those of its files."""
    return hashlib.sha256((checkpoint / MANIFEST).read_bytes()).hexdigest()


def serial_of(facts: dict[str, Any]) -> str:
    """Return the serial number that identifies a robot in the ledger, from its controller's facts."""
    return str(facts.get("serial_number", "unknown"))


def state_directory() -> Path:
    """Return the user's state directory: ``$XDG_STATE_HOME/td3robot``, or ``~/.local/state/td3robot``."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "td3robot"


class Ledger:
    """The ledger, a JSON file in the user's state directory, and a lock for each robot beside it.

    Args:
        records: A directory of records; its own ledger, from before there was a common one, is read as well.
        directory: Where the ledger is; by default :func:`state_directory`.
        recovery: The command that recovers the robot, for error messages.
    """

    def __init__(
        self,
        records: Path | None = None,
        directory: Path | None = None,
        recovery: str = "td3robot recover --robot CELL",
    ) -> None:
        self._recovery = recovery
        self.path = (directory or state_directory()) / "ledger.json"
        self._older = None if records is None else records / "ledger.json"

    def require(self, stage: str, serial: str, digest: str, override: str | None) -> None:
        """Require the stage below and, for stages that move the arm, that no fault is pending.

        Raises:
            LadderError: One is missing; says what to do first.
        """
        if stage in ("confirm", "run"):
            self.require_released(serial)
        if stage == STAGES[0] or override:
            return
        passed = _entry(self._read(), serial).get("checkpoints", {}).get(digest, {})
        missing = list(takewhile(lambda below: below not in passed, STAGES[STAGES.index(stage) - 1 :: -1]))
        if missing:
            raise LadderError(
                f"--mode {stage} asks for a passed --mode {missing[0]} of this checkpoint on robot {serial}, and "
                f"{self.path} has none; first: --mode {', then --mode '.join(reversed(missing))}"
            )

    def require_released(self, serial: str) -> None:
        """Require that no fault is pending; call this before moving the robot.

        Raises:
            LadderError: Naming the fault, or the program that drives the robot.
        """
        with self.held(serial):
            self._require_released(serial)

    @contextmanager
    def held(self, serial: str) -> Iterator[None]:
        """Hold a robot inside this context: no other program of this user drives it meanwhile.

        Raises:
            LadderError: Another program does.
        """
        self._make_directory()
        path = self.path.with_name(f"{re.sub(r'[^0-9A-Za-z._-]', '_', serial)}.lock")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LadderError(
                f"the lock {path} of robot {serial} cannot be opened ({error.strerror}), and nothing moves without it; "
                f"{remedy(error)}"
            ) from None
        try:
            try:
                locks.lock(lock)
            except BlockingIOError:
                driven = _entry(self._read(), serial).get("driven") or {"pid": "unknown"}
                raise LadderError(
                    f"robot {serial} is driven by another program (process {driven['pid']}); end that first"
                ) from None
            yield
        finally:
            os.close(lock)

    @contextmanager
    def driving(self, serial: str, record: Path) -> Iterator[None]:
        """Drive a robot inside this context; the disk says so before it begins.

        If the program is killed meanwhile, the next one finds that, and nothing moves until ``recover``.

        Raises:
            LadderError: Another program drives it, or a fault is pending.
        """
        with self.held(serial):
            self._require_released(serial)
            with self._changed() as robots:
                _entry(robots, serial)["driven"] = {"since": _now(), "pid": os.getpid(), "record": str(record)}
            try:
                yield
            except Td3RobotError:
                self._end_driving(serial)
                raise
            except BaseException as error:
                self.latch(serial, f"the program that drove it ended unexpectedly ({type(error).__name__}: {error})")
                raise
            self._end_driving(serial)

    def _end_driving(self, serial: str) -> None:
        with self._changed() as robots:
            _entry(robots, serial)["driven"] = None

    def _require_released(self, serial: str) -> None:
        """Require that no fault is pending; only the holder of the robot may call this."""
        robot = _entry(self._read(), serial)
        latched, driven = robot.get("latched"), robot.get("driven")
        if latched is None and driven is not None:
            raise LadderError(
                f"the program that drove robot {serial} (process {driven['pid']}, since {driven['since']}, record "
                f"{driven['record']}) ended without bringing it to rest in order, and nothing moves before its "
                f"operator has looked at it: {self._recovery}"
            )
        if latched is not None:
            raise LadderError(
                f"robot {serial} was stopped by a fault on {latched['at']} ({latched['fault']}), and nothing moves "
                f"before its operator has dealt with that: {self._recovery}"
            )

    def note_calibration(self, serial: str, checksum: str | None) -> None:
        """Record the arm calibration with which a robot was checked; None for the nominal kinematics."""
        with self._changed() as robots:
            _entry(robots, serial)["calibration"] = checksum

    def require_calibration(self, serial: str, checksum: str | None) -> None:
        """Require that the arm's calibration is the one with which it was checked.

        Raises:
            LadderError: It has changed since.
        """
        robot = _entry(self._read(), serial)
        if "calibration" in robot and robot["calibration"] != checksum:
            sheet = "of the data sheet"
            raise LadderError(
                f"robot {serial} was checked with the kinematics {robot['calibration'] or sheet}, and now has those "
                f"{checksum or sheet}: its arm or its calibration setting was changed; run --mode check "
                "first, and teach again what was taught with the old ones"
            )

    def passed(self, stage: str, serial: str, digest: str, record: Path, speed: float, override: str | None) -> None:
        """Record a passed stage."""
        with self._changed() as robots:
            stages = _entry(robots, serial).setdefault("checkpoints", {}).setdefault(digest, {})
            stages[stage] = {"at": _now(), "record": str(record), "speed": speed, "override": override}

    def latch(self, serial: str, fault: str) -> None:
        """Record that a fault stopped the robot; the first one stays."""
        with self._changed() as robots:
            robot = _entry(robots, serial)
            robot["latched"] = robot.get("latched") or {"at": _now(), "fault": fault}

    def release(self, serial: str) -> None:
        """Record that the operator has dealt with the fault.

        A ledger that cannot be read is set aside; every other robot of it then awaits its operator.
        """
        with self._changed(mend=True) as robots:
            _entry(robots, serial).update(latched=None, driven=None)

    def latched(self, serial: str) -> str | None:
        """Return the fault that awaits the operator, or None; a program that died while driving counts as one."""
        try:
            robot = _entry(self._read(), serial)
        except LadderError as error:
            return str(error)
        if robot.get("latched") is not None:
            return str(robot["latched"]["fault"])
        driven = robot.get("driven")
        return None if driven is None else f"process {driven['pid']} ended while it drove the robot"

    def waiting(self) -> list[str]:
        """Return a sentence for each robot that awaits its operator or is being driven now, without taking a lock.

        Raises:
            LadderError: The ledger cannot be read.
        """
        sentences = []
        for serial, robot in self._read().items():
            which = "Every robot without an entry of its own" if serial == UNKNOWN else f"Robot {serial}"
            if (latched := robot.get("latched")) is not None:
                sentences.append(
                    f"{which} was stopped by a fault on {latched['at']} ({latched['fault']}); nothing moves it "
                    "before td3robot recover."
                )
            elif (driven := robot.get("driven")) is not None:
                sentences.append(
                    f"Robot {serial} is driven by process {driven['pid']} since {driven['since']}; if that ended, "
                    "nothing moves the robot before td3robot recover."
                )
        return sentences

    def _read(self) -> dict[str, Any]:
        older = {} if self._older is None else _robots(self._older)
        return older | _robots(self.path)

    def _mended(self) -> dict[str, Any]:
        """Read the ledger; one that cannot be read is kept under another name, and all of its robots are latched."""
        try:
            return self._read()
        except DamagedLedgerError:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            damaged = next(path for path in (self.path, self._older) if path is not None and path.exists())
            damaged.replace(aside)
            return {UNKNOWN: {"latched": {"at": _now(), "fault": f"its entry in the ledger was lost: see {aside}"}}}

    def _make_directory(self) -> None:
        if not locks.AVAILABLE:
            raise LadderError(
                "an arm is driven from Linux only: nothing keeps a second program from the same robot on this system"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LadderError(
                f"the ledger {self.path} cannot be kept ({error.strerror}), and nothing moves without one; set "
                "XDG_STATE_HOME to a folder that can be written to"
            ) from None

    @contextmanager
    def _changed(self, mend: bool = False) -> Iterator[dict[str, Any]]:
        self._make_directory()
        lock = None
        try:
            lock = locks.open_directory(self.path.parent)
            locks.lock(lock, wait=True)
            robots = self._mended() if mend else self._read()
            yield robots
            atomic.write_text(self.path, json.dumps({"robots": robots}, indent=1) + "\n", durable=True)
        except OSError as error:
            raise LadderError(
                f"the ledger {self.path} could not be written ({error.strerror}); {remedy(error)}, and check the robot"
            ) from None
        finally:
            if lock is not None:
                os.close(lock)


def _robots(path: Path) -> dict[str, Any]:
    try:
        robots: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["robots"]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LadderError(
            f"the ledger {path} could not be opened ({error.strerror}), so nobody knows which robots await their "
            f"operator, and nothing moves; {remedy(error)}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DamagedLedgerError(
            f"the ledger {path} cannot be read, so nobody knows which robots await their operator, and nothing moves; "
            "look at the robot, and then: td3robot recover --robot CELL, which sets that file aside"
        ) from None
    return robots


def _entry(robots: dict[str, Any], serial: str) -> dict[str, Any]:
    """Return a robot's entry, which may be changed; one without begins as what is known of every other robot."""
    entry: dict[str, Any] = robots.setdefault(serial, dict(robots.get(UNKNOWN, {})))
    return entry


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
