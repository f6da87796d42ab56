"""Checks that the parts of a checkpoint are possible and belong together, before anything is built from them."""

from itertools import pairwise

import numpy as np

from td3robot.config import RobotEnvironmentConfig, RunConfig
from td3robot.errors import CheckpointError
from td3robot.policy.checkpoint import Arrays, Checkpoint
from td3robot.policy.documents import MODELS, short
from td3robot.policy.observation_scaling import LARGEST, PRIVILEGED

OPTIMIZER = "_optimizer"
MOMENTS = ("exp_avg", "exp_avg_sq")
GENERATOR_BYTES = 5056  # torch's Mersenne twister

Shapes = dict[str, tuple[int, ...]]


def require_playable(saved: Checkpoint, config: RunConfig) -> None:
    """Refuse a checkpoint whose documents, actor and normaliser do not match each other and its configuration.

    Args:
        saved: The checkpoint.
        config: The checkpoint's configuration, without overrides.

    Raises:
        CheckpointError: Naming the first part that does not fit.
    """
    _Validation(saved, config).require_playable()


def require_whole(saved: Checkpoint, config: RunConfig) -> None:
    """Refuse a checkpoint with a part that is missing, impossible, or does not fit; reads every file.

    Args:
        saved: The checkpoint, saved for play or for resuming.
        config: The checkpoint's configuration, without overrides.

    Raises:
        CheckpointError: Naming the first part that does not fit.
    """
    _Validation(saved, config).require_whole()


class _Validation:
    """The checks of one checkpoint, whose documents are read and valid by themselves."""

    def __init__(self, saved: Checkpoint, config: RunConfig) -> None:
        self.saved, self.config, self.path = saved, config, saved.path
        self.documents = {name: saved.document(name) for name in MODELS if saved.has(name)}
        self.contract = saved.contract()
        self.counters, self.evaluation = saved.document("counters"), saved.document("evaluation")
        self.privileged = saved.privileged_size
        asymmetric = config.agent.is_asymmetric
        self.require(
            asymmetric is (self.privileged > 0),
            f"its configuration has {'an' if asymmetric else 'no'} asymmetric critic, and it "
            f"{'lacks' if asymmetric else 'has'} a {PRIVILEGED}",
        )
        self.sizes = self.contract.observation.size + self.privileged, self.contract.action.size
        sizes = self.contract.observation.size, self.sizes[1], *([self.privileged] if asymmetric else [])
        self.networks = config.agent.networks(*sizes)

    def require(self, fits: bool, what: str) -> None:
        """Raise if something does not fit, saying what."""
        if not fits:
            raise self.error(what)

    def error(self, what: str) -> CheckpointError:
        """Return the error that says what does not fit."""
        return CheckpointError(f"{self.path}: {what}; the checkpoint's parts do not belong together")

    def require_playable(self) -> None:
        """Check what play needs."""
        saved, evaluation = self.saved, self.evaluation
        among_all = evaluation is None or evaluation in self.documents.get("evaluations", [evaluation])
        self.require(among_all, "evaluation.json is none of those in evaluations.json")
        self.require(
            (evaluation is not None) is (self.counters["evaluated_step"] > 0),
            f"counters.json names step {self.counters['evaluated_step']} as evaluated, evaluation.json "
            f"{'none' if evaluation is None else 'another'}",
        )
        self.require_same_environment()
        averages = saved.has("actor_average")
        self.require(
            averages is (saved.has("replay") and "actor_average" in self.networks),
            f"it {'has' if averages else 'lacks'} an actor_average, unlike its configuration's agent",
        )
        self.require_network("actor_average" if averages else "actor")
        scaled, wanted = bool(saved.normalizer()["enabled"][0]), self.config.agent.normalize_observations
        self.require(
            scaled is wanted,
            f"its configuration has agent.normalize_observations {str(wanted).lower()}, and its "
            f"normaliser {'is' if scaled else 'is not'} enabled",
        )
        saved.policy()

    def require_whole(self) -> None:
        """Check everything."""
        self.require_playable()
        files = self.saved.manifest["files"]
        groups = [name.removesuffix(".safetensors") for name in files if name.endswith(".safetensors")]
        for name in groups:
            if name in self.networks:
                self.require_network(name)
            elif name.endswith(OPTIMIZER):
                self.require_optimizer(name)
            else:
                self.saved.arrays(name)
        if self.saved.has("replay"):
            self.require_resumable(groups)

    def require_same_environment(self) -> None:
        """Compare the configuration's environment with the contract's."""
        environment, terms = self.config.environment, self.contract.terms
        if isinstance(environment, RobotEnvironmentConfig):
            self.require(terms.get("guard") is not None, "its configuration is of a robot, and its contract of none")
            own, arm = environment.robot.arm, terms["robot"].get("arm", environment.robot.arm)
            self.require(arm == own, f"its configuration is of the arm {own!r}, its contract of {short(arm)}")
        else:
            named, trained = {"id": environment.id, "kwargs": environment.kwargs}, terms.get("environment")
            what = f"its configuration names the environment {short(named)}, its contract {short(trained)}"
            self.require(trained == named, what)

    def require_network(self, name: str) -> Shapes:
        """Return the shapes of a network; refuse layers other than the configuration's, and absurd weights."""
        arrays = self.saved.arrays(name)
        wanted = _shapes(self.networks[name], self.config.agent.layer_norm)
        self.require_shapes(name, arrays, wanted)
        for key, array in arrays.items():
            self.require(bool((np.abs(array) < LARGEST).all()), f"{name}: {key} holds a number beyond {LARGEST:g}")
        return wanted

    def require_optimizer(self, name: str) -> None:
        """Refuse arrays that are not Adam's state of a network; it is empty until the network's first update."""
        arrays, network, updates = self.saved.arrays(name), name.removesuffix(OPTIMIZER), self.counters["updates"]
        if not arrays:
            young = updates < self.config.agent.period or "changes" in self.documents
            self.require(young, f"{name} is empty after {updates} updates")
            return
        self.require(self.saved.has(network), f"{name} is there without {network}")
        if network not in self.networks:
            return
        wanted: Shapes = {}
        for key, shape in self.require_network(network).items():
            wanted |= {f"{key}.step": ()} | {f"{key}.{moment}": shape for moment in MOMENTS}
        self.require_shapes(name, arrays, wanted)
        for key, array in arrays.items():
            positive = not key.endswith((".step", ".exp_avg_sq")) or not (array < 0.0).any()
            self.require(positive, f"{name}: {key} holds a number below 0, and cannot be negative")

    def require_resumable(self, groups: list[str]) -> None:
        """Check what resuming needs in addition."""
        counters, environments = self.counters, self.config.training.environments
        agent = self.config.agent
        wanted = {*self.networks, *agent.optimizers, *agent.more_groups, "episodes", "torch_generator", "random"}
        missing = sorted(wanted - {*groups, *self.documents})
        self.require(not missing, f"{', '.join(missing)} is missing")
        for name in ("replay", "episodes"):
            self.require(counters.get(name) is not None, f"counters.json lacks {name}")
        self.require(
            len(counters["episodes"]) == environments,
            f"it has {len(counters['episodes'])} episodes in progress, and its configuration {environments} "
            "environments",
        )
        self.require_updates()
        self.require_replay()
        self.require_episodes()
        state = self.saved.arrays("torch_generator").get("state")
        self.require(
            state is not None and state.dtype == np.uint8 and state.shape == (GENERATOR_BYTES,),
            "torch_generator is no state of a random generator",
        )

    def require_updates(self) -> None:
        """Refuse more updates than the steps call for, or so few that a resumed run would catch up all at once."""
        config, environment = self.config, self.config.environment
        changed = {name for change in self.documents.get("changes", ()) for name in change["settings"]}
        if changed & {"agent.updates_per_step", "training.random_steps"}:
            return
        step, updates = self.counters["step"], self.counters["updates"]
        most = config.updates_due(step + config.training.environments)  # a save may come between updates and step
        self.require(updates <= most, f"{updates} updates are more than {step} steps allow")
        # On an arm, updates wait for the end of an episode; with overlap, for the next step.
        waiting = 2 * config.training.environments
        waiting += environment.episode_steps if isinstance(environment, RobotEnvironmentConfig) else 0
        enough = updates >= config.updates_due(step - waiting) - 1
        self.require(not updates or enough, f"{updates} updates are fewer than {step} steps call for")

    def require_replay(self) -> None:
        """Refuse rows that no environment of the contract can have given."""
        observation, action = self.sizes
        step, following = self.counters["step"], self.counters["replay"]["next"]
        capacity, most = self.config.agent.replay_capacity, step * (1 + self.config.agent.hindsight_goals)
        rows = self.saved.arrays("replay").get("rows")
        if rows is None or rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != 2 * observation + action + 3:
            raise self.error("replay holds no rows of this contract's transitions")
        count = len(rows)
        self.require(
            count <= min(capacity, most), f"replay holds {count} transitions of {step} steps, with room for {capacity}"
        )
        self.require(
            following == count if count < capacity else following < capacity,
            f"counters.json writes the next transition at {following} of {count}",
        )
        actions, terminated, discount = rows[:, observation : observation + action], rows[:, -2], rows[:, -1]
        self.require(
            bool((np.abs(actions) <= 1.0).all() and np.isin(terminated, (0.0, 1.0)).all()),
            "replay holds an action outside of [-1, 1], or an end that is neither 0 nor 1",
        )
        self.require(
            bool((discount >= 0.0).all() and (discount <= 1.0).all() and (np.abs(rows) <= LARGEST).all()),
            f"replay holds a discount outside of [0, 1], or a number beyond {LARGEST:g}",
        )

    def require_episodes(self) -> None:
        """Refuse episodes in progress that no environment of the contract can have."""
        (observation, action), arrays = self.sizes, self.saved.arrays("episodes")
        for index in range(self.config.training.environments):
            actions, last = arrays.get(f"{index}.actions"), arrays.get(f"{index}.observation")
            if actions is None or actions.dtype != np.float32 or actions.ndim != 2 or actions.shape[1] != action:
                raise self.error(f"episodes has no actions of environment {index}")
            if last is None or last.dtype.kind != "f" or last.shape != (observation,):
                raise self.error(f"episodes has no observation of environment {index}")
            inside = bool((np.abs(actions) <= 1.0).all())
            self.require(inside, f"episodes has an action outside of [-1, 1] in environment {index}")

    def require_shapes(self, name: str, arrays: Arrays, wanted: Shapes) -> None:
        """Refuse a group with other names, shapes or types than those of a network or its optimizer."""
        for key in sorted(arrays.keys() | wanted.keys()):
            found = tuple(arrays[key].shape) if key in arrays else None
            self.require(
                found == wanted.get(key),
                f"{name} does not fit: {short(key)[1:-1]} is {found} in the checkpoint and {wanted.get(key)} by "
                "its configuration and contract",
            )
            floats = arrays[key].dtype.kind == "f"
            self.require(floats, f"{name}: {key} is of type {arrays[key].dtype}, not of floats")


def _shapes(sizes: list[int], layer_norm: bool) -> Shapes:
    """Return names and shapes of a network's tensors; see ``learning.networks.mlp``."""
    shapes: Shapes = {}
    index = 0
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= {f"net.{index}.weight": (outputs, inputs), f"net.{index}.bias": (outputs,)}
        if layer_norm and layer < len(sizes) - 2:
            shapes |= {f"net.{index + 1}.weight": (outputs,), f"net.{index + 1}.bias": (outputs,)}
        index += 3 if layer_norm else 2
    return shapes
