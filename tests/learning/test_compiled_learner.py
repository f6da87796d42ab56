"""The compiled learner against the reference, against finite differences, and against itself after a restart."""

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from td3robot.config import TrainingConfig
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.learner import LearnerUnavailableError, ReferenceLearner, make_learner
from td3robot.learning.replay import Batch, ReplayBuffer, Transition
from td3robot.learning.td3 import TD3

OBSERVATION, ACTION, ROWS = 5, 2, 400
LIVE = ("actor", "Q1", "Q2")

CASES = {
    "plain": {},
    "one layer": {"hidden": (12,)},
    "three layers": {"hidden": (12, 8, 10), "layer_norm": True},
    "layer norm": {"layer_norm": True},
    "scaled observations": {"normalize_observations": True},
    "average of the actor": {"average_tau": 0.01, "normalize_observations": True, "layer_norm": True},
    "no smoothing": {"policy_noise": 0.0},
    "narrow smoothing": {"policy_noise": 1.0, "noise_clip": 0.05},
    "actor at each update": {"policy_freq": 1, "tau": 1.0},
    "actor at each third": {"policy_freq": 3, "tau": 0.05},
    "another rate": {"learning_rate": 3e-3},
    "odd batch": {"batch_size": 17, "average_tau": 0.5, "layer_norm": True},
    "batch of one": {"batch_size": 1},
    "asymmetric critic": {"asymmetric_critic": True, "normalize_observations": True, "layer_norm": True},
    "imitation": {"imitation": 0.4, "layer_norm": True},
}


def make_agent(seed: int = 0, **changes) -> TD3:
    values = {"hidden": (16, 16), "batch_size": 32, "device": "cpu"} | changes
    privileged = 2 if values.get("asymmetric_critic") else 0  # of the same input
    agent = TD3(OBSERVATION - privileged, ACTION, TD3Config(**values), seed, privileged)
    agent.normalizer.update(np.random.default_rng(7).normal(0.5, 2.0, (100, OBSERVATION)))
    return agent


def make_replay(reward: float = 1.0, imitates: bool = False) -> ReplayBuffer:
    rng, replay = np.random.default_rng(3), ReplayBuffer(2 * ROWS, OBSERVATION, ACTION, imitates)
    for _ in range(ROWS):
        observation, following = rng.normal(0.5, 2.0, (2, OBSERVATION))
        action, summed, ended = rng.uniform(-1, 1, ACTION), reward * rng.normal(), rng.random() < 0.1
        advice = rng.uniform(-1, 1, ACTION) if imitates else ()
        replay.add([Transition(observation, action, summed, following, ended, rng.choice([0.99, 0.9]), advice)])
    return replay


def learner_of(agent: TD3, choice: str, before: str | None = None, report=lambda _: None):
    return make_learner(agent, TrainingConfig(learner=choice), before, report)


def compiled(agent: TD3):
    return learner_of(agent, "compiled")


def differences(a: TD3, b: TD3) -> dict[str, float]:
    """Give the largest difference of any number in each group, and require the same counts of steps."""
    mine, theirs, found = a.tensors(), b.tensors(), {}
    assert mine.keys() == theirs.keys()
    for name, group in mine.items():
        assert group.keys() == theirs[name].keys() or name.endswith("_optimizer")
        for key, value in group.items():
            if key.endswith(".step"):
                assert value == theirs[name][key]
            found[name] = max(found.get(name, 0.0), (value - theirs[name][key]).abs().max().item())
    return found


def weights_hash(agent: TD3) -> str:
    digest = hashlib.sha256()
    for group in agent.tensors().values():
        for value in group.values():
            digest.update(value.detach().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
@pytest.mark.quick("three layers", "average of the actor", "asymmetric critic")
def test_two_hundred_updates_are_those_of_the_reference(changes):
    one, other, replay = make_agent(**changes), make_agent(**changes), make_replay(imitates="imitation" in changes)
    draws = [np.random.default_rng(5), np.random.default_rng(5)]
    fast, slow = compiled(other), ReferenceLearner(one)
    pairs: list[tuple[float, float]] = []
    for count in (1, 2, 130, 67):  # more than are done in one call, and fewer
        metrics, wanted = fast.learn(replay, draws[1], count), slow.learn(replay, draws[0], count)
        assert len(metrics) == len(wanted)
        for mine, theirs in zip(metrics, wanted, strict=True):
            assert mine.keys() == theirs.keys()
            pairs += [(mine[name].item(), value.item()) for name, value in theirs.items()]
    assert one.updates == other.updates == 200
    assert draws[0].bit_generator.state == draws[1].bit_generator.state
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    if max(differences(one, other).values()) < 1e-5:
        assert all(mine == pytest.approx(theirs, rel=1e-4, abs=1e-5) for mine, theirs in pairs)
    else:  # at the edge of a ReLU, two roundings can fall apart, on one kind of CPU
        assert_as_near_to_exact_arithmetic(changes, compiled_agent=other, reference_agent=one)


def assert_as_near_to_exact_arithmetic(changes: dict[str, Any], compiled_agent: TD3, reference_agent: TD3) -> None:
    """Compare two agents after 200 updates with what both would give without rounding: the reference in float64."""
    exact, replay, draws = in_double(make_agent(**changes)), make_replay(), np.random.default_rng(5)
    for _ in range(200):
        batch = replay.sample(exact.config.batch_size, draws, exact.device)
        exact.update(Batch(*(column.double() for column in batch)))
    by_reference, by_compiled = differences(exact, reference_agent), differences(exact, compiled_agent)
    assert max(by_compiled.values()) < 3.0 * max(by_reference.values()) + 1e-5


def in_double(agent: TD3) -> TD3:
    """Have the reference compute in float64."""
    for network in agent.networks().values():
        network.double()
    return agent


LARGER = {"hidden": (64, 64), "batch_size": 128}


# The others differ in what the updates of the test above show.
ROUNDED = ("plain", "layer norm", "average of the actor", "odd batch")


@pytest.mark.parametrize(
    "changes",
    [pytest.param(values, id=name, marks=[pytest.mark.slow] * (name not in ROUNDED)) for name, values in CASES.items()]
    + [pytest.param(LARGER, id="larger")],
)
@pytest.mark.quick("plain", "layer norm")
def test_the_compiled_learner_is_as_near_to_exact_arithmetic_as_the_reference(changes):
    """Larger networks always have a ReLU at whose edge two roundings fall apart, in either learner."""
    one, other, replay = make_agent(**changes), make_agent(**changes), make_replay()
    ReferenceLearner(one).learn(replay, np.random.default_rng(5), 200)
    compiled(other).learn(replay, np.random.default_rng(5), 200)
    assert_as_near_to_exact_arithmetic(changes, compiled_agent=other, reference_agent=one)


def critic_loss(agent: TD3, batch: Batch, target: torch.Tensor) -> torch.Tensor:
    return sum(
        ((agent.networks()[name](batch.observation, batch.action) - target) ** 2).mean() for name in ("Q1", "Q2")
    )


def actor_loss(agent: TD3, batch: Batch) -> torch.Tensor:
    return -agent.Q1(batch.observation, agent.actor(batch.observation)).mean()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_slopes_are_finite_differences_of_the_losses(layer_norm):
    """The losses are computed by torch in float64; each weight is moved by 1e-6 to both sides."""
    # The smallest rates leave the weights where they are, so that the slopes are those at known weights.
    changes = {"layer_norm": layer_norm, "policy_freq": 1, "learning_rate": 1e-30}
    agent, exact, replay = make_agent(**changes), in_double(make_agent(**changes)), make_replay()
    fast = compiled(agent)
    batch = Batch(*(column.double() for column in replay.sample(32, np.random.default_rng(5), agent.device)))
    noise = torch.randn(batch.action.shape, generator=exact.generator) * 0.2
    with torch.no_grad():
        action = (exact.actor_target(batch.next_observation) + noise.clamp(-0.5, 0.5)).clamp(-1.0, 1.0)
        Q1, Q2 = (exact.networks()[f"{name}_target"](batch.next_observation, action) for name in ("Q1", "Q2"))
        target = batch.reward + batch.discount * (1.0 - batch.terminated) * torch.min(Q1, Q2)

    # The actor's pass leaves nothing of meaning in the critics' slopes: those of an update without it are looked at.
    slopes = {}
    for name, freq in (("critics", 10**6), ("actor", 1)):
        agent.config = agent.config.model_copy(update={"policy_freq": freq})
        agent.generator.set_state(make_agent(**changes).generator.get_state())
        fast.learn(replay, np.random.default_rng(5), 1)
        slopes[name] = fast._storage.memory.gradient.copy()

    layouts = {"actor": fast._storage.actor.spans(0), "Q1": fast._storage.critics.spans(0)}
    layouts["Q2"] = fast._storage.critics.spans(1)
    for name, spans in layouts.items():
        slope = slopes["actor" if name == "actor" else "critics"]
        for parameter, (start, shape) in zip(exact.networks()[name].parameters(), spans, strict=True):
            flat = parameter.data.view(-1)
            for index in {0, len(flat) // 2, len(flat) - 1}:
                losses = []
                for move in (1e-6, -2e-6):
                    flat[index] += move
                    with torch.no_grad():
                        loss = actor_loss(exact, batch) if name == "actor" else critic_loss(exact, batch, target)
                    losses.append(loss.item())
                flat[index] += 1e-6
                wanted = (losses[0] - losses[1]) / 2e-6
                assert slope[start + index] == pytest.approx(wanted, rel=1e-3, abs=1e-6), (name, shape, index)


def test_the_learners_take_turns_on_one_agent():
    one, other, replay = make_agent(average_tau=0.1), make_agent(average_tau=0.1), make_replay()
    draws = [np.random.default_rng(5), np.random.default_rng(5)]
    ReferenceLearner(one).learn(replay, draws[0], 30)
    ReferenceLearner(other).learn(replay, draws[1], 7)
    compiled(other).learn(replay, draws[1], 11)
    ReferenceLearner(other).learn(replay, draws[1], 12)
    assert max(differences(one, other).values()) < 1e-5
    observation = np.ones((3, OBSERVATION), np.float32)
    for play in (False, True):
        np.testing.assert_allclose(
            one.select_action(observation, play), other.select_action(observation, play), atol=1e-5
        )


def test_tensors_that_are_loaded_later_are_what_it_goes_on_with():
    trained, other, replay = make_agent(), make_agent(seed=9), make_replay()
    ReferenceLearner(trained).learn(replay, np.random.default_rng(1), 8)
    fast = compiled(other)
    fast.learn(replay, np.random.default_rng(2), 4)
    other.load_tensors({name: {k: v.clone() for k, v in group.items()} for name, group in trained.tensors().items()})
    other.generator.set_state(trained.generator.get_state())
    other.updates = trained.updates
    ReferenceLearner(trained).learn(replay, np.random.default_rng(3), 8)
    fast.learn(replay, np.random.default_rng(3), 8)
    assert max(differences(trained, other).values()) < 1e-5


def test_what_is_not_a_number_stays_so():
    agent, replay = make_agent(), make_replay(reward=float("nan"))
    metrics = compiled(agent).learn(replay, np.random.default_rng(0), 2)
    assert all(torch.isnan(metrics[0][name]) for name in ("critic_loss", "target_Q_mean"))
    assert torch.isnan(torch.cat([p.flatten() for p in agent.Q1.parameters()])).any()


def learned_hash(queue: object = None) -> str:
    """Do some updates, and give the hash of every weight and moment."""
    torch.set_num_threads(1)
    agent = make_agent(layer_norm=True, average_tau=0.01, normalize_observations=True)
    compiled(agent).learn(make_replay(), np.random.default_rng(5), 150)
    found = weights_hash(agent)
    if queue is not None:
        queue.put(found)  # type: ignore[attr-defined]
    return found


@pytest.mark.slow
def test_the_same_numbers_come_out_bit_for_bit_after_a_restart():
    here, context = learned_hash(), multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=learned_hash, args=(queue,))
    process.start()
    assert queue.get(timeout=120) == here  # compiled here or loaded there
    process.join()
    assert learned_hash() == here


def test_the_products_have_as_many_threads_as_they_were_given_and_no_more():
    agent, replay, seen = make_agent(), make_replay(), []
    fast, blas = compiled(agent), ThreadpoolController().select(internal_api="openblas")
    before = [each["num_threads"] for each in blas.info()]
    draw = replay.draw
    replay.draw = lambda *given: seen.append([each["num_threads"] for each in blas.info()]) or draw(*given)
    fast.learn(replay, np.random.default_rng(0), 1)
    assert seen == [[1] * len(before)]
    assert [each["num_threads"] for each in blas.info()] == before


@pytest.fixture
def without_numba(monkeypatch):
    missing = ModuleNotFoundError("No module named 'numba'", name="numba")
    loader = SimpleNamespace(find_spec=Mock(side_effect=missing))
    monkeypatch.delitem(sys.modules, "td3robot.learning.compiled.learner")
    monkeypatch.setattr(sys, "meta_path", [loader, *sys.meta_path])


def test_it_is_chosen_where_it_is_possible():
    assert learner_of(make_agent(), "auto").name == "compiled"
    assert learner_of(make_agent(), "reference").name == "reference"


def test_without_numba_the_reference_does_the_updates_and_says_why(without_numba):
    said = []
    assert learner_of(make_agent(), "auto", report=said.append).name == "reference"
    assert said == [
        "the compiled learner needs numba, which is not installed: pip install numba; the reference does the updates, "
        "which is slower"
    ]
    with pytest.raises(LearnerUnavailableError, match=r"needs numba, which is not installed: pip install numba$"):
        learner_of(make_agent(), "compiled", report=said.append)
    assert learner_of(make_agent(), "compiled", "compiled", said.append).name == "reference"
    assert said[-1] == (
        "the reference learner continues what the compiled learner began: the same updates, but rounded differently, "
        "so this resume is not exact"
    )


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    from td3robot.learning import compiled
    from td3robot.learning.compiled import learner as module

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert compiled.learner_cache() is None
    said = []
    assert module.CompiledLearner(make_agent(), 1, said.append).name == "compiled"
    assert len(said) == 1 and "file cannot be written, so the learner is compiled anew at each start" in said[0]


@pytest.fixture(scope="module")
def first_compilation(tmp_path_factory):
    """Compile the learner in a cache of its own, which takes long; gives the cache, and what was reported."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, learner_in_another_process(cache)


@pytest.mark.slow
def test_a_first_compilation_is_announced(first_compilation):
    announced = "compiling the learner, once on this machine (some 10 seconds)"
    assert first_compilation[1] == [announced]


@pytest.mark.parametrize("compiles", [True, False])
def test_only_compiling_the_learner_is_called_compiling(monkeypatch, compiles):
    """A busy machine takes seconds to load it from the cache, or compiles something small meanwhile."""
    from numba.core import event

    from td3robot.learning.compiled import learner as module

    class Program:
        disable_compile = print

        def __call__(self, *_):
            with event.trigger_event("numba:compile", data={"dispatcher": self if compiles else compiled}):
                pass

    monkeypatch.setattr(module, "learn", Program())
    said = []
    module.CompiledLearner(make_agent(), 1, said.append)
    assert said == ["compiling the learner, once on this machine (some 10 seconds)"] * compiles


@pytest.mark.parametrize("error", [EOFError("Ran out of input"), OSError("No space left on device")])
def test_a_compilation_that_fails_leaves_the_reference(monkeypatch, tmp_path, error):
    from td3robot.learning.compiled import learner as module

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def fail(*_):
        raise error

    monkeypatch.setattr(module, "learn", fail)
    said = []
    assert learner_of(make_agent(), "auto", report=said.append).name == "reference"
    assert said == [
        f"the learner cannot be compiled here ({error}); delete {module.cache_home()} and try again; the reference "
        "does the updates, which is slower"
    ]


def learner_in_another_process(cache: Path) -> list[str]:
    """Make the learner with a cache of its own, as a new start does, and give what is reported."""
    script = (
        "from learning.test_compiled_learner import make_agent; from td3robot.learning.compiled.learner import "
        "CompiledLearner; CompiledLearner(make_agent(), 1, print)"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.mark.parametrize(("kind", "start"), [("*.nbc", b"BC\xc0\xde"), ("*.nbi", b"")])
@pytest.mark.slow
def test_a_damaged_cache_is_compiled_anew(first_compilation, tmp_path, kind, start):
    """Numba's files have no checksum: what cannot be loaded is noticed, no more."""
    shutil.copytree(first_compilation[0], tmp_path, dirs_exist_ok=True)
    (file,) = tmp_path.rglob(kind)
    content = bytearray(file.read_bytes())
    at = content.index(start)
    content[at : at + 2000] = bytes(len(content[at : at + 2000]))
    file.write_bytes(content)
    assert any("was damaged, and is compiled anew" in line for line in learner_in_another_process(tmp_path))
    assert learner_in_another_process(tmp_path) == []
