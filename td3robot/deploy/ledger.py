"""Which rungs a checkpoint has climbed on which robot, and which robots await their operator after a fault."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from td3robot.errors import Td3RobotError
from td3robot.policy.checkpoint import MANIFEST

RUNGS = ("check", "shadow", "confirm", "run")


class LadderError(Td3RobotError):
    """The rung below is missing, or a fault has not been dealt with."""


def digest_of(checkpoint: Path) -> str:
    """Return the identity of a checkpoint: the SHA-256 of its manifest, which holds those of its files."""
    return hashlib.sha256((checkpoint / MANIFEST).read_bytes()).hexdigest()


def serial_of(facts: dict[str, Any]) -> str:
    """Return the serial number that identifies a robot in the ledger, from the facts its controller reports."""
    return str(facts.get("serial_number", "unknown"))


class Ledger:
    """The ledger, a JSON file in the directory of records.

    Args:
        records: That directory.
    """

    def __init__(self, records: Path) -> None:
        self.path = records / "ledger.json"

    def require(self, rung: str, serial: str, digest: str, override: str | None) -> None:
        """Require the rung below and, for rungs that move the arm, that no fault is pending.

        Raises:
            LadderError: One is missing; says what to do first.
        """
        if rung in ("confirm", "run"):
            self.require_released(serial)
        if rung == RUNGS[0] or override:
            return
        below = RUNGS[RUNGS.index(rung) - 1]
        if below not in self._read().get(serial, {}).get("checkpoints", {}).get(digest, {}):
            raise LadderError(
                f"--mode {rung} asks for a passed --mode {below} of this checkpoint on robot {serial}, and "
                f'{self.path} has none; do that first, or give --override "reason"'
            )

    def require_released(self, serial: str) -> None:
        """Require that no fault is pending; whatever moves the robot calls this first.

        Raises:
            LadderError: Naming the fault.
        """
        latched = self._read().get(serial, {}).get("latched")
        if latched is not None:
            raise LadderError(
                f"robot {serial} was stopped by a fault on {latched['at']} ({latched['fault']}), and nothing moves "
                "before its operator has dealt with that: td3robot recover --robot CELL"
            )

    def note_calibration(self, serial: str, checksum: str | None) -> None:
        """Write down which calibration of its arm a robot was checked with; None for the nominal kinematics."""
        with self._changed() as robots:
            robots.setdefault(serial, {})["calibration"] = checksum

    def require_calibration(self, serial: str, checksum: str | None) -> None:
        """Ask that the arm's calibration is the one that it was checked with.

        Raises:
            LadderError: It changed since.
        """
        robot = self._read().get(serial, {})
        if "calibration" in robot and robot["calibration"] != checksum:
            sheet = "of the data sheet"
            raise LadderError(
                f"robot {serial} was checked with the kinematics {robot['calibration'] or sheet}, and now has those "
                f"{checksum or sheet}: its arm or its calibration setting was changed; run --mode check "
                "first, and teach again what was taught with the old ones"
            )

    def passed(self, rung: str, serial: str, digest: str, record: Path, speed: float, override: str | None) -> None:
        """Record a passed rung."""
        with self._changed() as robots:
            rungs = robots.setdefault(serial, {}).setdefault("checkpoints", {}).setdefault(digest, {})
            rungs[rung] = {"at": _now(), "record": str(record), "speed": speed, "override": override}

    def latch(self, serial: str, fault: str) -> None:
        """Record that a fault stopped the robot."""
        with self._changed() as robots:
            robots.setdefault(serial, {})["latched"] = {"at": _now(), "fault": fault}

    def release(self, serial: str) -> None:
        """Record that the operator dealt with the fault."""
        with self._changed() as robots:
            robots.setdefault(serial, {})["latched"] = None

    def latched(self, serial: str) -> str | None:
        """Return the fault that awaits its operator, or None."""
        latched = self._read().get(serial, {}).get("latched")
        return None if latched is None else str(latched["fault"])

    def _read(self) -> dict[str, Any]:
        try:
            robots: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))["robots"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError):
            raise LadderError(
                f"{self.path} cannot be read; restore it, or delete it and climb the ladder anew"
            ) from None
        return robots

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            robots = self._read()
            yield robots
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            temporary.write_text(json.dumps({"robots": robots}, indent=1) + "\n", encoding="utf-8")
            temporary.replace(self.path)
        finally:
            os.close(lock)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
