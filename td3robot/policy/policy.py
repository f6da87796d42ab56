"""A trained policy for play: the actor and its normaliser in NumPy, with the contract of its training.

No torch here: a robot's control process loads and runs a policy without it.
"""

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from td3robot.errors import ContractError
from td3robot.policy.contract import Contract, require_covered
from td3robot.policy.documents import short
from td3robot.policy.observation_scaling import LARGEST, ObservationScaling

if TYPE_CHECKING:
    from td3robot.config import DisturbanceConfig

# Assumed bound of observations that are not clipped.
OBSERVED = 1e6
NAME = re.compile(r"net\.\d{1,3}\.(weight|bias)")
Tensors = dict[str, NDArray[np.float32]]


class Policy:
    """Map one observation to one action in [-1, 1].

    Args:
        actor: The actor's tensors by their names in a checkpoint (``net.0.weight`` ...).
        scaling: The normaliser's scaling of observations.
        contract: What the policy was trained for.
        config: The text of its run's configuration; empty if it has none.
        name: What ``td3robot.make_env`` makes the policy's environment from.

    Attributes:
        layers: Weight (inputs, outputs) and bias of each linear layer, and those of the layer norm that follows it.

    Raises:
        ValueError: The tensors are not an actor for these observations.
    """

    def __init__(
        self,
        actor: Tensors,
        scaling: ObservationScaling,
        contract: Contract,
        config: str = "",
        name: str = "CHECKPOINT",
    ) -> None:
        self.contract, self.config, self.name = contract, config, name
        self.observation_size = len(scaling.shift)
        self.scaling = scaling
        self.layers = _layers(actor, self.observation_size)
        _require_bounded(self.layers, scaling)

    @cached_property
    def varied(self) -> "DisturbanceConfig":
        """The disturbances that its training drew, as far as terms of a contract may differ by them."""
        from td3robot.policy.saved_config import drawn_disturbance  # only a comparison needs what it imports

        return drawn_disturbance(self.config)

    def require(self, environment: Any) -> None:
        """Refuse an environment that the policy was not trained for, by the same comparison as on an arm.

        Args:
            environment: One of td3robot's, as ``gymnasium.make`` or ``td3robot.make_env`` returns it.

        Raises:
            ContractError: Naming the first term that differs by more than training covers, and both values.
        """
        own = f"td3robot.make_env({self.name!r}) makes the policy's own environment"
        try:
            contract: Contract = environment.get_wrapper_attr("contract")()
        except AttributeError:
            raise ContractError(f"{environment} has no contract to compare with the policy's; {own}") from None
        require_covered(contract, self.contract, self.varied, own)

    def act(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Compute the action (action,) for an observation (observation,), or (batch, ...) for a batch.

        Raises:
            ContractError: The observation has the wrong length.
        """
        x = np.asarray(observation, dtype=np.float32)
        if x.shape[-1] != self.observation_size:
            raise ContractError(
                f"the policy wants observations of {self.observation_size} numbers and was given {x.shape[-1]}; "
                f"td3robot.make_env({self.name!r}) makes the policy's own environment"
            )
        x = self.scaling(x)
        for weight, bias, norm in self.layers[:-1]:
            x = x @ weight + bias
            if norm is not None:
                x = _layer_norm(x, *norm)
            x = np.maximum(x, 0.0)
        weight, bias, _ = self.layers[-1]
        action: NDArray[np.float32] = np.tanh(x @ weight + bias)
        return action


Layer = tuple[NDArray[np.float32], NDArray[np.float32], tuple[NDArray[np.float32], NDArray[np.float32]] | None]


def _layers(actor: Tensors, inputs: int) -> list[Layer]:
    """Sort ``net.<index>.weight|bias`` into linear layers, each with the layer norm that follows it.

    Raises:
        ValueError: They are not a sequence of layers, or could overflow.
    """
    names = {name: int(name.split(".")[1]) for name in actor if NAME.fullmatch(name)}
    if strange := sorted(actor.keys() - names.keys()):
        raise ValueError(f"{short(strange[0])} is no tensor of an actor")
    layers: list[Layer] = []
    for index in sorted(set(names.values())):
        weight, bias = (_floats(actor, f"net.{index}.{kind}") for kind in ("weight", "bias"))
        if bias.ndim != 1 or weight.shape not in ((len(bias), inputs), (len(bias),)):
            raise ValueError(f"net.{index} has weights {weight.shape} and biases {bias.shape} behind {inputs} numbers")
        if weight.ndim == 2:
            layers.append((np.ascontiguousarray(weight.T), bias, None))
            inputs = len(bias)
        elif not layers or layers[-1][2] is not None or len(bias) != inputs:
            raise ValueError(f"net.{index} is a layer norm without a layer")
        else:
            layers[-1] = (layers[-1][0], layers[-1][1], (weight, bias))
    if not layers or layers[-1][2] is not None:
        raise ValueError("it has no last layer")
    return layers


def _floats(actor: Tensors, name: str) -> NDArray[np.float32]:
    if name not in actor:
        raise ValueError(f"{name} is missing")
    if actor[name].dtype.kind != "f":
        raise ValueError(f"{name} is of type {actor[name].dtype}, not of floats")
    if not (np.abs(actor[name]) < LARGEST).all():
        raise ValueError(f"{name} holds a number beyond {LARGEST:g}")
    return actor[name].astype(np.float32, copy=False)


def _require_bounded(layers: list[Layer], scaling: ObservationScaling) -> None:
    """Refuse layers whose largest possible sums, for the largest observations, could overflow.

    Raises:
        ValueError: Saying in which layer.
    """
    bound = np.full(len(scaling.shift), min(float(scaling.clip), OBSERVED))
    for number, (weight, bias, norm) in enumerate(layers):
        bound = np.abs(weight).astype(np.float64).T @ bound + np.abs(bias)
        if not (bound < LARGEST).all():
            raise ValueError(f"layer {number} may reach {bound.max():.3g}, which no actor does")
        if norm is not None:  # normalised values are at most sqrt(n)
            bound = np.abs(norm[0]) * np.sqrt(len(bound)) + np.abs(norm[1]).astype(np.float64)


def _layer_norm(x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """Normalise along the last axis; NumPy's own ``mean`` and ``var`` compute the same bits in twice the time."""
    count = np.float32(x.shape[-1])
    offset = x - np.add.reduce(x, axis=-1, keepdims=True) / count
    variance = np.add.reduce(offset * offset, axis=-1, keepdims=True) / count
    scaled = offset / np.sqrt(variance + np.float32(1e-5)) * weight + bias
    return scaled.astype(np.float32, copy=False)
