"""The stand-in for an FR3 as a child process, in the environment that ``launch/franka_sim.sh`` makes."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from td3robot.errors import ConfigError, RobotError

# Where that environment is, unless the variable names another interpreter.
VARIABLE, ENVIRONMENT = "TD3ROBOT_FRANKA_SIM", Path(".venv-franka-sim")
SERVE, JUDGE = Path(__file__).parent / "serve.py", Path(__file__).parent / "judge.py"
START_S, END_S, ANSWER_S = 60.0, 10.0, 5.0


def simulator_python() -> Path:
    """Return the interpreter of franka-sim's environment.

    Raises:
        ConfigError: There is none; says how to make it.
    """
    named = os.environ.get(VARIABLE)
    python = Path(named) if named else ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        raise ConfigError(
            f"there is no {python}, where franka-sim, the stand-in for a Franka, would be: run launch/franka_sim.sh, "
            f"or set {VARIABLE} to the interpreter of its environment"
        )
    return python


def judge_log(path: Path) -> dict[str, Any]:
    """Check a log of commands with franka-sim's offline checker; see ``judge.py`` for the result.

    Raises:
        ConfigError: There is no environment for it.
        RobotError: The check failed.
    """
    found = subprocess.run([str(simulator_python()), "-P", str(JUDGE), str(path)], capture_output=True, text=True)
    if found.returncode != 0:
        raise RobotError(f"the log {path} could not be judged: {found.stderr.strip().splitlines()[-1:]}")
    verdict: dict[str, Any] = json.loads(found.stdout)
    return verdict


class FrankaStandin:
    """A stand-in FR3 on a loopback address, with motion limits enforced. It ends with this process.

    Args:
        host: A 127.x.x.x address.
        *options: Options of ``serve.py``.

    Attributes:
        events: Its events so far, oldest first.

    Raises:
        ConfigError: There is no environment for it.
        RobotError: It did not start.
    """

    def __init__(self, host: str, *options: str) -> None:
        self.host, self.events = host, list[dict[str, Any]]()
        self._heard = threading.Condition()
        self._process = subprocess.Popen(
            [str(simulator_python()), "-P", str(SERVE), "--host", host, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self._complaints: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._hear, self._complain)]
        for reader in self._readers:
            reader.start()
        if not self._await("ready", 1, START_S):
            self.close()
            said = self._complaints[-1] if self._complaints else f"status {self._process.poll()}"
            raise RobotError(f"the stand-in for a Franka did not start on {host} ({said})")

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return all its events of one kind."""
        return [line for line in self.events if line["event"] == event]

    def reflex(self) -> None:
        """Stop the arm as a contact would."""
        self._order("reflex")

    def flush(self) -> None:
        """Make it write out its log of commands.

        Raises:
            RobotError: It does not answer.
        """
        count = len(self.told("flushed")) + 1
        self._order("flush")
        if not self._await("flushed", count, ANSWER_S):
            raise RobotError("the stand-in for a Franka does not answer")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()

    def close(self) -> None:
        """Make it write its log and end. May be repeated."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise RobotError("the stand-in for a Franka has ended") from None

    def _await(self, event: str, count: int, timeout_s: float) -> bool:
        with self._heard:
            self._heard.wait_for(lambda: len(self.told(event)) >= count or self._process.poll() is not None, timeout_s)
        return len(self.told(event)) >= count

    def _hear(self) -> None:
        for line in self._process.stdout or ():
            with self._heard:
                self.events.append(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def _complain(self) -> None:
        for line in self._process.stderr or ():
            if line.strip():
                self._complaints.append(line.strip())
