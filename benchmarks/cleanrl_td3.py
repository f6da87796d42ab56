"""The updates of CleanRL's TD3, from its installed scripts, to be called like those of any other learner.

CleanRL's scripts can't be imported: all that they do stands under ``if __name__ == "__main__"``. So the installed
script is loaded as a module with its training loop cut down to the lines that sample a batch and update. Everything
else of the learner runs as it is written: networks, optimizers, replay buffer, defaults. Replaced are

* the environments, by spaces of the sizes to measure; the writer of TensorBoard's files, by nothing;
* the lines that log every 100 steps, by nothing;
* the networks' width, 256 in the scripts, by that of the agent's configuration. They have no layer norm.

To install it: ``pip install --no-deps --ignore-requires-python cleanrl==1.2.0``, beside Stable-Baselines3, whose replay
buffer it uses, and jax, flax and optax, which SBX brings. It asks for Python below 3.11 and old releases of these; its
updates run with new ones. Without ``--ignore-requires-python``, pip takes 0.4.8, which has no JAX.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec, module_from_spec, spec_from_loader
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector.utils import batch_space

VERSION = "1.2.0"
SCRIPTS = {"cleanrl": "td3_continuous_action", "cleanrl_jax": "td3_continuous_action_jax"}
NEEDED = {"cleanrl": ("stable_baselines3",), "cleanrl_jax": ("stable_baselines3", "jax", "flax", "optax")}
REPLACED = ("distutils.util", "gym", "torch.utils.tensorboard")  # imports; what the scripts use of them is given
WIDTH = 256
Transitions = Iterable[tuple[np.ndarray, np.ndarray, float, np.ndarray]]


def why_not(name: str, agent: Any) -> str | None:
    """Say why one of the scripts can't be measured here with an agent's configuration, or return None."""
    try:
        installed = distribution("cleanrl").version
    except PackageNotFoundError:
        return "cleanrl is not installed"
    if installed != VERSION:
        return f"cleanrl {installed} is installed, but the script is only known as of {VERSION}"
    if missing := [package for package in NEEDED[name] if find_spec(package) is None]:
        return f"it needs {', '.join(missing)}"
    if len(agent.hidden) != 2 or agent.hidden[0] != agent.hidden[1]:
        return "its networks have two hidden layers of one width"
    return None


class Width(ast.NodeTransformer):
    """Replace the networks' width."""

    def __init__(self, width: int) -> None:
        self.width = width

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Replace one number."""
        return ast.copy_location(ast.Constant(self.width), node) if node.value == WIDTH else node


def names(node: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """List the names in a piece of code, or those that it assigns (``ast.Store``)."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)}


def imports_replaced(node: ast.stmt) -> bool:
    """Whether a statement is an import of what is replaced."""
    if isinstance(node, ast.Import):
        return any(each.name in REPLACED for each in node.names)
    return isinstance(node, ast.ImportFrom) and node.module in REPLACED


def cut(source: str, widths: dict[str, int]) -> ast.Module:
    """Return a script without its loop, which becomes a function ``update(steps)`` that only samples and updates."""
    module = ast.parse(source)
    *definitions, main = module.body
    assert isinstance(main, ast.If)
    at = next(number for number, node in enumerate(main.body) if isinstance(node, ast.For))
    training = main.body[at].body[-1]  # type: ignore[attr-defined]
    assert isinstance(training, ast.If)
    assert ast.unparse(training.test) == "global_step > args.learning_starts"
    loop = ast.For(
        ast.Name("global_step", ast.Store()),
        ast.Name("steps", ast.Load()),
        [node for node in training.body if "writer" not in names(node)],
        [],
    )
    function = ast.parse("def update(steps): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    # What the script's loop assigns are the script's own variables.
    function.body = [ast.Global(sorted(names(loop, ast.Store) - {"global_step"})), loop]
    for node in definitions:
        if isinstance(node, ast.ClassDef) and node.name in widths:
            Width(widths[node.name]).visit(node)
    module.body = [node for node in definitions if not imports_replaced(node)] + main.body[:at] + [function]
    return ast.fix_missing_locations(module)


class Loader(SourceFileLoader):
    """Load a script cut down."""

    def __init__(self, fullname: str, path: str, widths: dict[str, int]) -> None:
        super().__init__(fullname, path)
        self.widths = widths

    def get_code(self, fullname: str) -> CodeType:
        """Compile it, without the cache of compiled files."""
        return compile(cut(self.get_data(self.path).decode(), self.widths), self.path, "exec")


class Environments:
    """One environment as the scripts see it, of a size, and never stepped."""

    num_envs = 1

    def __init__(self, environment: Env) -> None:
        self.single_observation_space, self.single_action_space = (
            environment.observation_space,
            environment.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space)
        self.action_space = batch_space(self.single_action_space)

    def reset(self) -> np.ndarray:
        """Return an observation."""
        return np.zeros(self.observation_space.shape, np.float32)


class Silent:
    """A writer that writes nothing."""

    def __init__(self, folder: str) -> None:
        pass

    def add_text(self, name: str, text: str) -> None:
        """Drop it."""


def load(name: str, environment: Env, agent: Any, rows: int) -> ModuleType:
    """Load one of the scripts, up to where its training would begin."""
    path = str(distribution("cleanrl").locate_file(f"cleanrl/{SCRIPTS[name]}.py"))
    loader = Loader(f"_{name}", path, {"Actor": agent.hidden[0], "QNetwork": agent.hidden[0]})
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    environments = Environments(environment)
    module.__dict__["gym"] = SimpleNamespace(
        spaces=spaces, vector=SimpleNamespace(SyncVectorEnv=lambda makers: environments)
    )
    module.__dict__["SummaryWriter"] = Silent
    module.__dict__["strtobool"] = lambda text: text == "true"
    options = {"buffer-size": rows, "batch-size": agent.batch_size, "policy-frequency": agent.policy_freq}
    if name == "cleanrl":
        options["cuda"] = "false"
    arguments = [str(part) for key, value in options.items() for part in (f"--{key}", value)]
    sys.modules[loader.name] = module  # where dataclasses look up their annotations
    with patch.object(sys, "argv", [path, *arguments]):
        loader.exec_module(module)
    return module


def weights(name: str, module: ModuleType) -> Iterator[np.ndarray]:
    """Give the weights of the trained networks and of their targets, once their computation has ended."""
    if name == "cleanrl":
        for network in ("actor", "qf1", "qf2", "target_actor", "qf1_target", "qf2_target"):
            yield from (each.detach().numpy() for each in getattr(module, network).parameters())
        return
    from jax import tree

    for state in (module.actor_state, module.qf1_state, module.qf2_state):
        yield from (np.asarray(each) for each in tree.leaves((state.params, state.target_params)))


class Updates:
    """Some updates of CleanRL's TD3 at a time."""

    def __init__(
        self, name: str, environment: Env, agent: Any, transitions: Transitions, rows: int, count: int
    ) -> None:
        self._name, self._module, self._count, self._done = name, load(name, environment, agent, rows), count, 0
        for observation, action, reward, following in transitions:
            self._module.rb.add(observation[None], following[None], action[None], np.array([reward]), np.zeros(1), [{}])
        before = [each.copy() for each in weights(name, self._module)]
        self._update(2 * agent.policy_freq)
        after = weights(name, self._module)
        if any(np.array_equal(*pair) for pair in zip(before, after, strict=True)):
            raise RuntimeError(
                f"{name}: its updates leave weights as they were, so they are not what is to be measured"
            )

    def _update(self, count: int) -> None:
        self._module.update(range(self._done, self._done + count))
        self._done += count

    def __call__(self) -> None:
        """Do them, and wait until they are done: JAX computes in the background."""
        self._update(self._count)
        if self._name != "cleanrl":
            module = self._module
            module.jax.block_until_ready((module.actor_state, module.qf1_state, module.qf2_state))
