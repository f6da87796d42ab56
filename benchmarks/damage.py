"""Damage checkpoints at random, open each in every way there is, and count what happens.

    python benchmarks/damage.py [--count 2000] [--first 0] [--seed 0] [--show CLASS]

Every mutation must be refused with one sentence, or make no difference, or be another valid checkpoint: one whose
manifest was made to agree, and whose values are all possible. A traceback, a hang, or harm is a defect, and the exit
status is 1 then. Harm is: a file that differs from its manifest and was used; numbers that are not finite; an action
outside [-1, 1]; a module imported that nobody trusted; and a loss of what every checkpoint has to have.
"""

import argparse
import io
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from mutations import Mutation, damage

from td3robot import build, catalog
from td3robot.cli import evaluation, inspection
from td3robot.cli.resuming import resumed
from td3robot.config import RunConfig, load_config
from td3robot.deploy.loaded_policy import open_checkpoint
from td3robot.envs.playing import Evaluation
from td3robot.errors import Td3RobotError, TrainingDivergedError
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import Checkpoint, find, load_policy

ROOT = Path(__file__).resolve().parents[1]
CANARY = "damage_canary"  # a module that mutated configurations name
LONGEST_S = 30.0
SENTENCE = 2000  # characters
OTHER = 25  # further steps of a resumed run
SMALL = (
    "agent.hidden=[8,8]", "agent.layer_norm=true", "agent.batch_size=16",
    "agent.replay_capacity=50", "agent.normalize_observations=true", "agent.average_tau=0.1",
    "agent.device=cpu", "training.steps=60", "training.random_steps=20",
    "training.threads=1", "training.evaluate_every=40", "training.evaluation_episodes=1",
    "training.environments=2", "training.overlap=false", "training.checkpoint_every=20", "training.log_every=20",
)  # fmt: skip
GRAVE = ("traceback", "harmful")
OUTCOMES = ("refused", "equal", "other values", *GRAVE)


class Hang(BaseException):
    """Nothing came of it in time."""


class Quiet:
    """A listener that says nothing."""

    def progress(self, step: int, steps_per_second: float) -> None:
        """Ignore."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of opening a damaged checkpoint in one way.

    Attributes:
        result: One of OUTCOMES.
        said: The sentence, or the last lines of the traceback.
    """

    result: str
    said: str = ""


def make_bases(folder: Path) -> dict[str, Path]:
    """Make the checkpoints that are damaged: a run's last and best, with every kind of document, and a released one."""
    config: RunConfig = load_config(ROOT / "configs" / "gym_pendulum.yaml", SMALL)
    trainer = make_trainer(config, folder / "run", Quiet())
    trainer.changes.append({"step": 20, "settings": {"agent.gamma": [0.9, 0.99]}, "why": "a test"})
    trainer.train()
    trainer.close()
    last, best = (max((folder / "run").glob(f"{kind}-*")) for kind in ("last", "best"))
    released = folder / "released"
    shutil.copytree(catalog.policy(Path("ur5e_reach")), released)
    return {"last": last, "best": best, "released": released}


def play(path: Path) -> Any:
    """Load the policy, and act."""
    policy = load_policy(path)
    observations = np.random.default_rng(0).normal(0.0, 3.0, (50, policy.observation_size)).astype(np.float32)
    actions = policy.act(observations)
    require_playable(actions)
    return actions.tolist()


def inspect(path: Path) -> Any:
    """Run `td3robot inspect`, in words and in full."""
    inspection.inspect(path, everything=False, as_json=False)
    inspection.inspect(path, everything=True, as_json=False)
    saved = Checkpoint(find(path))
    figures = inspection.inspected(saved, inspection.resumable_from(path, saved))
    return {
        name: value for name, value in figures.items() if name not in ("path", "bytes", "made_with", "resumable_from")
    }


def evaluate(path: Path) -> Any:
    """Run `td3robot eval` for an episode of a Gymnasium environment; of an arm's, act once, as a rehearsal opens it."""
    run, policy, environment = evaluation.opened(Checkpoint(find(path)))
    observation, _ = environment.reset(seed=0)
    figures = []
    for _ in range(30):
        action = policy.act(observation)
        require_playable(action)
        observation, reward, *_ = environment.step(action)
        figures.append(float(reward))
    if run.environment.kind == "robot":
        assert (open_checkpoint(path).policy.act(observation) == policy.act(observation)).all()
    return figures


def resume(path: Path) -> Any:
    """Resume the run for some steps, and save it; the checkpoint is gone then."""
    trainer = resumed(path.parent, None, OTHER, [], None)
    trainer.listener = Quiet()
    try:
        trainer.train()
    finally:
        trainer.close()
    found = {
        f"{group}/{name}": each for group, named in trainer.agent.tensors().items() for name, each in named.items()
    }
    if not all(bool(torch.isfinite(tensor).all()) for tensor in found.values()):
        raise HarmError("a network of the resumed run is not finite")
    return {name: tensor.tolist() for name, tensor in found.items()} | {"step": trainer.step}


class HarmError(Exception):
    """A damaged checkpoint was used."""


def require_playable(actions: Any) -> None:
    """Refuse actions that are not finite, or outside of [-1, 1]."""
    if not (np.isfinite(actions).all() and (np.abs(actions) <= 1.0).all()):
        raise HarmError("an action is not finite, or outside of [-1, 1]")


WAYS: dict[str, Callable[[Path], Any]] = {"play": play, "inspect": inspect, "eval": evaluate, "resume": resume}


def try_one(way: str, path: Path, baseline: Any, mutation: Mutation) -> Outcome:
    """Open a damaged checkpoint in one way, and judge what comes of it."""
    try:
        with quiet(), timed():
            result = WAYS[way](path)
    except TrainingDivergedError as error:
        return Outcome("refused", str(error))
    except Td3RobotError as error:
        said = str(error)
        if "\n" in said or len(said) > SENTENCE or not printable(said):
            return Outcome("traceback", f"no sentence: {said[:300]!r}")
        return Outcome("refused", said)
    except HarmError as error:
        return Outcome("harmful", str(error))
    except Hang:
        return Outcome("harmful", f"nothing after {LONGEST_S:g} s")
    except Exception:  # noqa: BLE001  # whatever it is, it is what is looked for
        return Outcome("traceback", " / ".join(traceback.format_exc().splitlines()[-7:]))
    finally:
        imported = sys.modules.pop(CANARY, None)
    if imported is not None:
        return Outcome("harmful", f"{CANARY} was imported")
    if result == baseline:
        return (
            Outcome("equal")
            if not (mutation.fatal and way in ("inspect", "resume"))
            else Outcome("harmful", "accepted")
        )
    if not mutation.signed and mutation.kind != "manifest":
        return Outcome("harmful", "it differs from its manifest, and was used")
    return Outcome("harmful", "accepted") if mutation.fatal else Outcome("other values")


def printable(text: str) -> bool:
    """Whether a terminal can show it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Take what is printed, as a terminal of UTF-8 would."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    error = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with redirect_stdout(out), redirect_stderr(error):
        yield
        out.flush()


@contextmanager
def timed() -> Iterator[None]:
    """Raise :class:`Hang` after LONGEST_S."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        """End it."""
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def alike_environments_once() -> Iterator[None]:
    """Build a robot's environment once for each configuration; it takes seconds."""
    whole = build.make_robot_env

    @cache
    def kept(text: str) -> Any:
        """Build it."""
        return whole(configs[text])

    configs: dict[str, Any] = {}

    def make(config: Any, *arguments: Any, **more: Any) -> Any:
        """Look it up."""
        text = config.model_dump_json()
        configs[text] = config
        return kept(text)

    build.make_robot_env = make
    try:
        yield
    finally:
        build.make_robot_env = whole


def mutate(count: int, seed: int, folder: Path, first: int = 0) -> Iterator[tuple[str, Mutation, dict[str, Outcome]]]:
    """Yield the base's name, the mutation, and what came of it in each way, for so many mutations."""
    torch.set_num_threads(1)
    canary = folder / "modules"
    canary.mkdir(parents=True)
    (canary / f"{CANARY}.py").write_text("")
    sys.path.insert(0, str(canary))
    try:
        with alike_environments_once():
            yield from _mutate(count, seed, folder, first)
    finally:
        sys.path.remove(str(canary))


def _mutate(count: int, seed: int, folder: Path, first: int) -> Iterator[tuple[str, Mutation, dict[str, Outcome]]]:
    with quiet():
        bases = make_bases(folder)
        ways = {name: [way for way in WAYS if way != "resume" or name == "last"] for name in bases}
        run = folder / "one"
        path = run / "last-000000060"
        baselines = {}
        for name, base in bases.items():
            shutil.copytree(base, path)
            baselines |= {(name, way): WAYS[way](path) for way in ways[name]}
            shutil.rmtree(run)
    shares = {"last": 0.7, "best": 0.15, "released": 0.15}
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, number])
        name = str(rng.choice(list(shares), p=list(shares.values())))
        shutil.copytree(bases[name], path)
        mutation = damage(path, rng)
        yield name, mutation, {way: try_one(way, path, baselines[name, way], mutation) for way in ways[name]}
        shutil.rmtree(run)


def verdict(outcomes: dict[str, Outcome]) -> str:
    """Return the worst that came of a mutation; ``refused`` where one way refused it, and no other noticed."""
    results = {outcome.result for outcome in outcomes.values()}
    for result in (*reversed(GRAVE), "other values", "refused"):
        if result in results:
            return result
    return "equal"


def main() -> None:
    """Count, print a table, and name what is grave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Number of the first mutation, to share them out.")
    parser.add_argument("--show", choices=OUTCOMES, help="Print each mutation of this class, with what was said.")
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    by_way: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        mutations = mutate(arguments.count, arguments.seed, Path(folder), arguments.first)
        for number, (base, mutation, outcomes) in enumerate(mutations, start=arguments.first):
            counts[mutation.kind, verdict(outcomes)] += 1
            for way, outcome in outcomes.items():
                by_way[way, outcome.result] += 1
                if outcome.result in (*GRAVE, arguments.show):
                    signed = "signed" if mutation.signed else "unsigned"
                    print(f"{number}: {outcome.result}: {way} of {base}, {signed}, {mutation.what}: {outcome.said}")
    for title, found in (("damage", counts), ("opened for", by_way)):
        print(f"\n| {title} | {' | '.join(OUTCOMES)} | all |\n|---{'|---:' * (len(OUTCOMES) + 1)}|")
        names = list(dict.fromkeys(name for name, _ in found))
        for name in sorted(names):
            row = [found[name, outcome] for outcome in OUTCOMES]
            print(f"| {name} | {' | '.join(map(str, row))} | {sum(row)} |")
        whole = [sum(found[name, outcome] for name in names) for outcome in OUTCOMES]
        print(f"| all | {' | '.join(map(str, whole))} | {sum(whole)} |")
    sys.exit(int(any(counts[key] for key in counts if key[1] in GRAVE)))


if __name__ == "__main__":
    main()
