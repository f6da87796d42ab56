"""Kill trainings at random moments, resume them, and compare with a run that nothing interrupted."""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from td3robot.policy.checkpoint import Checkpoint, find, newest

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = (
    "agent.hidden=[8,8]", "agent.replay_capacity=400", "agent.batch_size=16",
    "agent.updates_per_step=0.1", "training.random_steps=20", "training.threads=1", "training.evaluate_every=70",
    "training.evaluation_episodes=1", "training.log_every=10", "training.checkpoint_every=5",
)  # fmt: skip
SCENES = {
    "pendulum": ("gym_pendulum", "training.overlap=false", "training.environments=1"),
    "pendulum, overlap": (
        "gym_pendulum", "training.overlap=true", "training.environments=2", "agent.n_step=3", "agent.layer_norm=true",
        "agent.normalize_observations=true", "agent.average_tau=0.01",
    ),
    "reach": ("ur5e_reach_quick", "training.overlap=false", "training.environments=1", "environment.episode_s=1.0"),
}  # fmt: skip
FAR = 10**9
DEADLINE_S = 300.0

# Children start from a server that has the imports done and no threads.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["td3robot.cli", "td3robot.build", "td3robot.learning.runs", "torch._dynamo"])


@dataclass
class Outcome:
    """What became of one run.

    Attributes:
        in_a_save: Kills that left a save half written.
        of_the_environment: Kills of the environments' process alone.
        differing: Files of the last checkpoint that are not those of the straight run.
        left_behind: Processes and half written files that were found afterwards.
        lost: Sentences about anything that was lost.
    """

    scene: str
    kills: int = 0
    in_a_save: int = 0
    of_the_environment: int = 0
    steps: int = 0
    files: int = 0
    differing: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0


def command_line(arguments: list[str], log: Path) -> None:
    """Run ``td3robot`` with arguments in this process, with its output in a file."""
    from td3robot.cli import main

    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    sys.argv = ["td3robot", *arguments]
    main()


class Killer:
    """Kill one run again and again.

    Args:
        folder: Where the run, its straight twin and the log are.
        scene: A key of ``SCENES``.
        draw: Chooses moments.
    """

    def __init__(self, folder: Path, scene: str, draw: random.Random) -> None:
        self.run, self.straight, self.log = folder / "run", folder / "straight", folder / "log"
        self._draw, self.outcome = draw, Outcome(scene)
        name, *overrides = SCENES[scene]
        self._overlap = "training.overlap=true" in overrides
        self._new = [str(CONFIGS / f"{name}.yaml"), *(f"--set={each}" for each in (*SMALL, *overrides))]
        self.log.touch()

    def kill(self, moments: Sequence[str]) -> Outcome:
        """Kill once at each moment (``step``, ``save``, ``environment``), then finish and compare."""
        began = time.monotonic()
        process = self._start(["train", *self._new, "--out", str(self.run), f"--steps={FAR}"])
        for moment in moments:
            before = self._step()
            self._await(process, before)
            getattr(self, f"_kill_{moment}")(process)
            self.outcome.kills += 1
            self._look(before)
            process = self._start(["train", "--resume", str(self.run), f"--steps={FAR}"])
        self._await(process, self._step())
        self._kill_step(process)
        self._compare(self._step() + 30)
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _start(self, arguments: list[str]):  # noqa: ANN202
        process = CHILDREN.Process(target=command_line, args=(arguments, self.log))
        process.start()
        return process

    def _step(self) -> int:
        return max((int(path.name[5:]) for path in self.run.glob("last-*")), default=-1)

    def _await(self, process, beyond: int) -> None:  # noqa: ANN001
        """Wait for a checkpoint beyond a step."""
        end = time.monotonic() + DEADLINE_S
        while self._step() <= beyond:
            if not process.is_alive() or time.monotonic() > end:
                raise RuntimeError(f"{self.outcome.scene}: no progress beyond {beyond}: {self.log.read_text()[-2000:]}")
            time.sleep(0.002)

    def _kill_step(self, process) -> None:  # noqa: ANN001
        time.sleep(self._draw.uniform(0.0, 0.15))
        self._end(process)

    def _kill_save(self, process) -> None:  # noqa: ANN001
        """Kill in the midst of a save, some moments after it began."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            while not self._saving() and time.monotonic() < end:
                pass
            time.sleep(self._draw.uniform(0.0, 0.02))
            os.kill(process.pid, signal.SIGSTOP)
            if self._saving():  # and it stays so
                break
            os.kill(process.pid, signal.SIGCONT)
        self.outcome.in_a_save += self._saving()
        self._end(process)

    def _saving(self) -> bool:
        return any(entry.name.startswith(".last-") for entry in os.scandir(self.run))

    def _kill_environment(self, process) -> None:  # noqa: ANN001
        """Kill the environments' process; the training has to end by itself, in a sentence, and saved."""
        time.sleep(self._draw.uniform(0.0, 0.1))
        for child in _children(process.pid):
            os.kill(child, signal.SIGKILL)
        process.join(DEADLINE_S)
        said = self.log.read_text()
        self.outcome.of_the_environment += 1
        if process.exitcode != 2 or "ended with status -9" not in said:
            self.outcome.lost.append(f"a killed environment ended the training with {process.exitcode}: {said[-300:]}")

    def _end(self, process) -> None:  # noqa: ANN001
        """Kill -9, and require that the process of the environments ends, too."""
        children = _children(process.pid)
        process.kill()
        process.join()
        end = time.monotonic() + 10.0
        while (left := [child for child in children if _runs(child)]) and time.monotonic() < end:
            time.sleep(0.01)
        self.outcome.left_behind += [f"process {child}" for child in left]

    def _look(self, before: int) -> None:
        """Require a whole checkpoint to resume from, no older than before, and a best policy that plays."""
        saved = newest(self.run)
        if saved.document("counters")["step"] < before:
            self.outcome.lost.append(f"the newest checkpoint is older than step {before}")
        if any(self.run.glob("best-*")):
            Checkpoint(find(self.run, ("best",))).policy()

    def _compare(self, end: int) -> None:
        """Finish both runs, and compare what they saved last."""
        for arguments in (["--resume", str(self.run)], [*self._new, "--out", str(self.straight)]):
            process = self._start(["train", *arguments, f"--steps={end}"])
            process.join(DEADLINE_S)
            if process.exitcode != 0:
                raise RuntimeError(f"{self.outcome.scene}: {self.log.read_text()[-2000:]}")
        mine, theirs = newest(self.run), newest(self.straight)
        for kind in ("last", "best") if any(self.straight.glob("best-*")) else ("last",):
            one, other = find(self.run, (kind,)), find(self.straight, (kind,))
            names = {path.name for path in (*one.iterdir(), *other.iterdir())} - {"config.yaml", "manifest.json"}
            self.outcome.files += len(names)
            same = [name for name in names if _bytes(one / name) == _bytes(other / name)]
            self.outcome.differing += sorted(f"{kind}/{name}" for name in names.difference(same))
        if _bytes(self.run / "evaluations.csv") != _bytes(self.straight / "evaluations.csv"):
            self.outcome.differing.append("evaluations.csv")
        self.outcome.steps = mine.document("counters")["step"]
        assert self.outcome.steps == theirs.document("counters")["step"]
        self.outcome.left_behind += [path.name for path in self.run.glob(".*")]
        if "did not repeat" in self.log.read_text():
            self.outcome.lost.append("an unfinished episode was dropped, and the log says so")


def moments(count: int, overlap: bool, environment_share: float, draw: random.Random) -> list[str]:
    """Draw when to kill: a third in a save, a share of the environments' process where there is one."""
    of_environment = round(environment_share * count) if overlap else 0
    chosen = ["save"] * round(count / 3) + ["environment"] * of_environment
    chosen += ["step"] * (count - len(chosen))
    draw.shuffle(chosen)
    return chosen


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def main() -> None:
    """Kill, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="In all, over three configurations.")
    parser.add_argument("--runs", type=int, default=2, help="Of each configuration; the kills are shared among them.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw, outcomes = random.Random(arguments.seed), []
    each = arguments.kills // (len(SCENES) * arguments.runs)
    for scene, (_, *overrides) in SCENES.items():
        for _ in range(arguments.runs):
            # One configuration of three has a process of its own; a tenth of all kills is three tenths of its.
            chosen = moments(each, "training.overlap=true" in overrides, 0.3, draw)
            with tempfile.TemporaryDirectory() as folder:
                outcomes.append(Killer(Path(folder), scene, draw).kill(chosen))
            print(json.dumps(asdict(outcomes[-1])), flush=True)
    print("\n| configuration | kills | in a save | of the environment | steps | files compared | different | lost |")
    print("|---|---|---|---|---|---|---|---|")
    for row in outcomes:
        print(
            f"| {row.scene} | {row.kills} | {row.in_a_save} | {row.of_the_environment} | {row.steps} | {row.files} | "
            f"{len(row.differing)} | {len(row.lost) + len(row.left_behind)} |"
        )


if __name__ == "__main__":
    main()
