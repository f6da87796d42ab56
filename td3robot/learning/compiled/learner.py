"""The compiled learner: TD3's update without autograd, with all updates of a round in one call."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from pickle import UnpicklingError
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from numba.core import event
from numba.core.errors import NumbaError
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from td3robot.jit import cache_home
from td3robot.learning.agent import Agent
from td3robot.learning.compiled import learner_cache
from td3robot.learning.compiled.blas import make_blas
from td3robot.learning.compiled.network import Trace
from td3robot.learning.compiled.storage import NetworkLayout, Storage
from td3robot.learning.compiled.update import METRICS, Draws, Scratch, Settings, learn
from td3robot.learning.learner import Learner, LearnerUnavailableError, Metrics, draw
from td3robot.learning.replay import ReplayBuffer
from td3robot.learning.td3 import TD3

# What loading a damaged cache raises, and what else can keep the learner from being compiled.
DAMAGED = (RuntimeError, UnpicklingError, EOFError, KeyError)
FAILED = (*DAMAGED, NumbaError, OSError, ImportError)
UPDATES_PER_CALL = 64  # their noise and rows are drawn beforehand


class CompiledLearner(Learner):
    """Do an agent's updates in compiled code, on the agent's own tensors.

    The random draws are those of the reference, in the same order, so that a run may switch from one to the other.

    Args:
        agent: The agent that learns, on the CPU.
        threads: Threads of the matrix products.
        report: Called with what the user should know: that it compiles, or that its cache cannot be used.

    Raises:
        LearnerUnavailableError: It cannot be compiled here.
    """

    name = "compiled"

    def __init__(self, agent: Agent, threads: int, report: Callable[[str], None]) -> None:
        if not isinstance(agent, TD3) or agent.device.type != "cpu":
            raise LearnerUnavailableError("the compiled learner updates TD3 on the CPU only")
        super().__init__(agent, threads)
        self._agent: TD3 = agent
        self._blas = make_blas()  # loads it, so that its threads are found
        self._blas_threads = ThreadpoolController().select(internal_api="openblas")
        self._storage = Storage(agent)
        self._scratch = _scratch(agent, self._storage)
        self._compile(report)

    def learn(self, replay: ReplayBuffer, rng: np.random.Generator, count: int) -> list[Metrics]:
        """Do updates, and return the metrics of those that updated the actor."""
        self._storage.adopt()
        found: list[Metrics] = []
        with self._blas_threads.limit(limits=self.threads):
            while count > 0:
                chosen, noise = draw(self._agent, replay, rng, min(count, UPDATES_PER_CALL))
                found += self._learn(replay.rows, Draws(chosen, noise.numpy()))
                count -= UPDATES_PER_CALL
        return found

    def _learn(self, rows: NDArray[np.float32], draws: Draws) -> list[Metrics]:
        agent, storage, count = self._agent, self._storage, len(draws.rows)
        done = np.array([agent.updates, storage.steps("actor"), storage.steps("Q1")])
        metrics = np.zeros((count, len(METRICS)), np.float32)
        learn(self._blas, rows, draws, storage.memory, storage.networks, _settings(agent), done, self._scratch, metrics)
        moved = (agent.updates + 1 + np.arange(count)) % agent.config.policy_freq == 0
        agent.updates += count
        storage.set_steps("actor", done[1])
        storage.set_steps("Q1", done[2])
        storage.set_steps("Q2", done[2])
        return [dict(zip(METRICS, row.unbind(), strict=True)) for row in torch.from_numpy(metrics[moved])]

    def _compile(self, report: Callable[[str], None]) -> None:
        """Compile, or load from the cache, by a call without updates."""
        folder = learner_cache()
        if folder is None:
            report(
                f"{cache_home()} cannot be written, so the learner is compiled anew at each start, which takes some "
                "seconds; set NUMBA_CACHE_DIR to a folder that can be written"
            )
        try:
            with nullcontext() if folder is None else event.install_listener("numba:compile", _Announcement(report)):
                self._learn_nothing(folder, report)
        except FAILED as error:
            what = (str(error).strip() or repr(error)).splitlines()[0]
            raise LearnerUnavailableError(
                f"the learner cannot be compiled here ({what}); delete {cache_home()} and try again"
            ) from error
        program: Any = learn
        program.disable_compile()  # one program for every size; anything else would be compiled silently

    def _learn_nothing(self, folder: Path | None, report: Callable[[str], None]) -> None:
        """Do no update, which loads the program; if the cache turns out to be damaged, compile it anew."""
        agent, batch = self._agent, self._agent.config.batch_size
        nothing = np.zeros((0, batch), np.int64), np.zeros((0, batch, agent.action_size), np.float32)
        try:
            self._learn(np.zeros((0, 0), np.float32), Draws(*nothing))
        except DAMAGED:
            if folder is None or not any(folder.rglob("*.nbi")):
                raise
            rmtree(folder, ignore_errors=True)
            report(f"the compiled learner in {folder} was damaged, and is compiled anew")
            self._learn(np.zeros((0, 0), np.float32), Draws(*nothing))


class _Announcement(event.Listener):
    """Report that numba compiles the learner, which it does not if it loads it from the cache, however slowly."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def on_start(self, event: event.Event) -> None:
        """Report the compilation of what learns, the largest part."""
        if event.data["dispatcher"] is learn:
            self._report("compiling the learner, once on this machine (some 10 seconds)")

    def on_end(self, event: event.Event) -> None:
        """Say nothing."""


def _settings(agent: TD3) -> Settings:
    config, scaling = agent.config, agent.normalizer.scaling
    return Settings(
        rate=config.learning_rate * agent.learning_rate_share,
        tau=np.float32(config.tau),
        average_tau=np.float32(config.average_tau if agent.averages else 0.0),
        policy_noise=np.float32(config.policy_noise),
        noise_clip=np.float32(config.noise_clip),
        policy_freq=config.policy_freq,
        shift=scaling.shift,
        scale=scaling.scale,
        clip=np.float32(scaling.clip),
        imitation=np.float32(config.imitation),
    )


def _scratch(agent: TD3, storage: Storage) -> Scratch:
    batch = agent.config.batch_size
    inputs, actions = (agent.input_size + agent.action_size) * batch, agent.action_size * batch
    return Scratch(
        x=_room(inputs), next_x=_room(inputs), x_slope=_room(inputs), action=_room(actions),
        action_slope=_room(actions), reward=_room(batch), discount=_room(batch), value=_room(2 * batch),
        value_slope=_room(2 * batch), target=_room(batch), guide_action=_room(actions), guide_value=_room(batch),
        trace=_trace(storage.critics, batch), actor_trace=_trace(storage.actor, batch),
    )  # fmt: skip


def _trace(layout: NetworkLayout, batch: int) -> Trace:
    units, layers = layout.copies * layout.units * batch, layout.copies * len(layout.table) * batch
    return Trace(_room(units), _room(units), _room(layers), _room(units), _room(batch), _room(batch))


def _room(size: int) -> NDArray[np.float32]:
    return np.zeros(size, np.float32)
