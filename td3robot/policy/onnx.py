"""A policy as one ONNX file: scaling and actor together, and what its inputs and outputs mean."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from td3robot.atomic import Replacement
from td3robot.errors import CheckpointError, ConfigError, MissingExtraError
from td3robot.policy.checkpoint import opened
from td3robot.policy.policy import Policy
from td3robot.policy.validation import require_playable

TOLERANCE = 1e-5
# By default, operators that runtimes since 2022 have (ONNX Runtime 1.12, IR version 8).
OPSET = 17
# The first with operators as they are used here, and the first with LayerNormalization.
OLDEST, LAYER_NORM = 13, 17
EPSILON = 1e-5


def to_onnx(path: Path, out: Path, opset: int = OPSET) -> float:
    """Write a checkpoint's policy as ONNX with input ``observation`` and output ``action``; compare it with the policy.

    The IR version is the oldest that has the operators. The file's metadata are the terms of the contract as JSON.

    Args:
        path: The checkpoint, or its run.
        out: The file to write.
        opset: Version of the operators.

    Returns:
        The largest difference over 1,000 random observations.

    Raises:
        MissingExtraError: The extra ``onnx`` is not installed.
        ConfigError: There is no such version.
        CheckpointError: The checkpoint is damaged, or the exported file would act differently; it is not written.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingExtraError("onnx", "exporting to ONNX") from None
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise ConfigError(f"--opset {opset} is outside {OLDEST} to {newest}, the newest that this onnx writes")
    saved = opened(path)
    require_playable(saved, saved.config())
    policy = saved.policy()
    model = _model(policy, opset)
    onnx.checker.check_model(model, full_check=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with Replacement(out) as temporary:
        onnx.save(model, str(temporary))
        return _difference(policy, temporary, opset)


def _difference(policy: Policy, path: Path, opset: int) -> float:
    """Return the largest difference of a file from its policy.

    Raises:
        CheckpointError: It does not run here, or is too large.
    """
    import onnxruntime

    observations = np.random.default_rng(0).normal(0.0, 2.0, (1000, policy.observation_size)).astype(np.float32)
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        actions = session.run(None, {"observation": observations})[0]
    except Exception as error:  # noqa: BLE001  # its exceptions have no common base
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"ONNX Runtime {onnxruntime.__version__} does not run --opset {opset} ({reason[:200]}), so the file could "
            f"not be compared and was not written; leave --opset out for {OPSET}"
        ) from None
    difference = float(np.abs(actions - policy.act(observations)).max())
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"the ONNX export acts otherwise by {difference:.2g}, more than {TOLERANCE}; it was not written"
        )
    return difference


class _Graph:
    """Nodes that follow each other; each is named after its number."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: ArrayLike) -> str:
        """Add a constant of float32, and return its name."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name


def _model(policy: Policy, opset: int) -> Any:
    from onnx import TensorProto, helper

    graph, scaling, layers = _Graph(), policy.scaling, policy.layers
    x = "observation"
    if np.isfinite(scaling.clip):
        x = graph.add("Sub", x, graph.constant(scaling.shift))
        x = graph.add("Mul", x, graph.constant(scaling.scale))
        x = graph.add("Clip", x, graph.constant(-scaling.clip), graph.constant(scaling.clip))
    for number, (weight, bias, norm) in enumerate(layers, start=1):
        x = graph.add("Gemm", x, graph.constant(weight), graph.constant(bias))
        if norm is not None:
            x = _normalized(graph, x, graph.constant(norm[0]), graph.constant(norm[1]), opset)
        if number < len(layers):
            x = graph.add("Relu", x)
    graph.nodes.append(helper.make_node("Tanh", [x], ["action"]))
    terms = policy.contract.terms
    rate = f", {terms['robot']['control_rate_hz']:g} times a second" if "robot" in terms else ""
    sizes = (("observation", policy.observation_size), ("action", len(layers[-1][1])))
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])] for name, size in sizes
    )
    made = helper.make_graph(
        graph.nodes, "policy", inputs, outputs, graph.constants,
        doc_string=f"Actions in [-1, 1] for observations as they are, not scaled{rate}. The metadata name each number "
        "and its unit. The guard is not part of this file.",
    )  # fmt: skip
    operators = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        made, opset_imports=operators, ir_version=helper.find_min_ir_version_for(operators),
        producer_name="td3robot", producer_version=version("td3robot"),
    )  # fmt: skip
    helper.set_model_props(model, {name: json.dumps(value) for name, value in terms.items()})
    return model


def _normalized(graph: _Graph, x: str, weight: str, bias: str, opset: int) -> str:
    """Add a layer norm along the last axis."""
    if opset >= LAYER_NORM:
        return graph.add("LayerNormalization", x, weight, bias, axis=-1, epsilon=EPSILON)
    offset = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[-1]))
    variance = graph.add("ReduceMean", graph.add("Mul", offset, offset), axes=[-1])
    deviation = graph.add("Sqrt", graph.add("Add", variance, graph.constant(EPSILON)))
    return graph.add("Add", graph.add("Mul", graph.add("Div", offset, deviation), weight), bias)
