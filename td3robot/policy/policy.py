"""A trained policy for play: the actor and its normaliser in NumPy, with the contract it was trained under.

No torch here: a robot's control process loads and runs a policy without it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from td3robot.errors import ContractError
from td3robot.policy.contract import Contract
from td3robot.policy.observation_scaling import ObservationScaling

Tensors = dict[str, NDArray[np.float32]]


class Policy:
    """Map one observation to one action in [-1, 1].

    Args:
        actor: The actor's tensors under their names in a checkpoint (``net.0.weight`` ...).
        scaling: The normaliser's scaling of observations.
        contract: What the policy was trained for.
    """

    def __init__(self, actor: Tensors, scaling: ObservationScaling, contract: Contract) -> None:
        self.contract = contract
        self.observation_size = len(scaling.shift)
        self._scaling = scaling
        self._layers = _layers(actor)

    def act(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Compute the action (action,) for one observation (observation,), or (batch, ...) for a batch.

        Raises:
            ContractError: The observation has the wrong length.
        """
        x = np.asarray(observation, dtype=np.float32)
        if x.shape[-1] != self.observation_size:
            raise ContractError(
                f"the policy wants observations of {self.observation_size} numbers and was given {x.shape[-1]}; "
                "use the robot and task of its contract (td3robot inspect CHECKPOINT)"
            )
        x = self._scaling(x)
        for weight, bias, norm in self._layers[:-1]:
            x = x @ weight + bias
            if norm is not None:
                x = _layer_norm(x, *norm)
            x = np.maximum(x, 0.0)
        weight, bias, _ = self._layers[-1]
        action: NDArray[np.float32] = np.tanh(x @ weight + bias)
        return action


Layer = tuple[NDArray[np.float32], NDArray[np.float32], tuple[NDArray[np.float32], NDArray[np.float32]] | None]


def _layers(actor: Tensors) -> list[Layer]:
    """Sort ``net.<index>.weight|bias`` into linear layers, each with the layer norm that follows it."""
    indices = sorted({int(name.split(".")[1]) for name in actor})
    layers: list[Layer] = []
    for index in indices:
        weight, bias = actor[f"net.{index}.weight"], actor[f"net.{index}.bias"]
        if weight.ndim == 2:
            layers.append((np.ascontiguousarray(weight.T), bias, None))
        else:
            layers[-1] = (layers[-1][0], layers[-1][1], (weight, bias))
    return layers


def _layer_norm(x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * weight + bias
    return scaled
