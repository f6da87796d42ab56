"""The contract of a policy: what it was trained for, term by term, so that it never silently runs on anything else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, Any

from td3robot.errors import ContractError
from td3robot.layout import Layout

if TYPE_CHECKING:
    from td3robot.config import DisturbanceConfig

# A length that was measured in a cell is not known better than this [m].
MEASURED_M = 0.0005
# Speeds that follow from other terms may differ by this share where those are covered by training.
FOLLOWS = 0.01
# Terms that say nothing about what a policy observes or commands.
IRRELEVANT = ("episode_steps", "guard.max_state_age_s")
# Lengths that training varied by up to a bound on either side, by the disturbance that has the bound.
VARIED_BY = {
    "robot.table_height_m": "table_offset_m",
    "guard.workspace.low[2]": "table_offset_m",
    "robot.tcp_offset_m": "tool_offset_m",
}
# Values that training drew from a range, by the disturbance that has the range.
DRAWN_FROM = {"task.object.mass_kg": "object_mass_kg", "task.object.friction": "object_friction"}
# The servo's law, of which training varied the lag and the damping ratio.
LAW = ("robot.servo_gain", "robot.servo_lookahead_s")
# The disturbances by which terms may differ.
COVERING = {*VARIED_BY.values(), *DRAWN_FROM.values(), "object_scale", "servo_lag", "servo_damping_factor"}
# Beginning of the names of such speeds.
IMPLIED = "action.implied_speeds."
ABSENT = "absent"
REFUSAL = "a policy runs only on what it was trained for"


@dataclass(frozen=True, slots=True)
class Difference:
    """A term whose value here is not the one of training.

    Attributes:
        name: The term's dotted name.
        here, trained: Its two values.
        covered: Whether training covers the value here, or the term does not matter to a policy.
        allowed: What training covers, formatted; empty for terms that must be equal.
    """

    name: str
    here: Any
    trained: Any
    covered: bool = False
    allowed: str = ""

    @property
    def wanted(self) -> str:
        """The value of training and, where it may differ, what training covers."""
        return formatted(self.trained) + (f" ({self.allowed})" if self.allowed else "")

    @property
    def found(self) -> str:
        """The value here and, where the term may differ but not so far, by how much it does."""
        apart = f", {abs(self.here - self.trained):.4g} apart" if self._is_too_far else ""
        return f"{formatted(self.here)}{apart}"

    def refusal(self, advice: str) -> str:
        """Return the sentence that refuses the term, on an arm and in Python."""
        return f"contract: {self.name}: {self.found}, wanted {self.wanted}; {REFUSAL}; {advice}"

    @property
    def _is_too_far(self) -> bool:
        return bool(self.allowed) and not self.covered and isinstance(self.here, float)


@dataclass(frozen=True, slots=True)
class Contract:
    """Nested plain values: robot, limits, tool, gripper, control rate, observation, action, guard.

    A policy runs where every term is equal, or differs by no more than its training varied it; see :meth:`compare`.
    """

    terms: Mapping[str, Any]

    @property
    def observation(self) -> Layout:
        """The layout of observations."""
        return Layout.from_json(self.terms["observation"])

    @property
    def action(self) -> Layout:
        """The layout of actions."""
        return Layout.from_json(self.terms["action"]["layout"])

    def differences(self, other: "Contract") -> list[tuple[str, Any, Any]]:
        """List every term that differs, as ``(dotted name, value here, value there)``.

        Of a layout, that is the first field that differs. A term without a value is absent. A setting that
        only one of them has is newer than the other, where it had its default. The robot's terms come first, because
        others are computed from them: the action's response from the control rate.
        """
        defaults = _defaults(self.terms)
        found = [
            (name, ABSENT if mine is None else mine, ABSENT if theirs is None else theirs)
            for name, mine, theirs in _differences("", self.terms, other.terms)
            if not (None in (mine, theirs) and _is_same(defaults.get(name), theirs if mine is None else mine))
        ]
        return sorted(found, key=lambda term: not term[0].startswith("robot."))

    def compare(self, trained: "Contract", varied: "DisturbanceConfig") -> list[Difference]:
        """List every term that differs from a policy's, with whether the policy's training covers it.

        A term that is not named at the head of this module must be equal. Without domain randomization, a measured
        length may still differ by ``MEASURED_M``, and speeds that follow from covered terms by 1 %.

        Args:
            trained: The policy's contract.
            varied: The disturbances that its training drew.
        """
        return [_compared(*term, self, trained, varied) for term in self.differences(trained)]

    def require_same(self, other: "Contract", here: str, there: str) -> None:
        """Refuse another contract unless it equals this one, as where a run is resumed exactly.

        Raises:
            ContractError: Naming the first term that differs, and both values.
        """
        for name, mine, theirs in self.differences(other):
            raise ContractError(f"{name} is {_shown(mine)} for {here} but {_shown(theirs)} for {there}; {REFUSAL}")


def require_covered(here: Contract, trained: Contract, varied: "DisturbanceConfig", advice: str) -> None:
    """Refuse a contract with a term that a policy's training does not cover.

    Args:
        here: The contract of the environment that the policy is to run in.
        trained: The policy's contract.
        varied: The disturbances that its training drew.
        advice: What to do, for the sentence.

    Raises:
        ContractError: Naming the first such term, both values, and what training covers.
    """
    for difference in here.compare(trained, varied):
        if not difference.covered:
            raise ContractError(difference.refusal(advice))


def formatted(value: Any) -> str:
    """Format a term's value for a sentence."""
    return f"{value:.6g}" if isinstance(value, float) else _shown(value)


def _compared(
    name: str, mine: Any, theirs: Any, here: Contract, trained: Contract, varied: "DisturbanceConfig"
) -> Difference:
    if name in IRRELEVANT:
        return Difference(name, mine, theirs, True, "any other will do")
    if name in LAW:
        return _compared_law(name, mine, theirs, here, trained, varied)
    if name == "task.object" and theirs == ABSENT and isinstance(mine, Mapping):
        return _compared_object(name, mine, trained.terms["task"]["any_object"], varied)
    if not all(isinstance(value, float) for value in (mine, theirs)):
        return Difference(name, mine, theirs)
    if name in VARIED_BY:
        bound = getattr(varied, VARIED_BY[name])
        allowed = f"within {bound:g} m, by training's {VARIED_BY[name]}" if bound > MEASURED_M else ""
        bound = max(bound, MEASURED_M)
        allowed = allowed or f"within {bound:g} m: training varied no {VARIED_BY[name].removesuffix('_m')}"
        return Difference(name, mine, theirs, abs(mine - theirs) <= bound + 1e-9, allowed)
    if name in DRAWN_FROM and (drawn := getattr(varied, DRAWN_FROM[name])) is not None:
        allowed = f"{drawn[0]:g} to {drawn[1]:g}, by training's {DRAWN_FROM[name]}"
        return Difference(name, mine, theirs, drawn[0] <= mine <= drawn[1], allowed)
    if name.startswith("task.object.size_m["):
        low, high = varied.object_scale
        scales = [a / b for a, b in zip(*(_object_size(each) for each in (here, trained)), strict=True)]
        even = max(scales) - min(scales) < 1e-6
        return Difference(
            name, mine, theirs, even and low <= scales[0] <= high,
            "" if low == high else f"times {low:g} to {high:g} along all edges, by training's object_scale",
        )  # fmt: skip
    if name.startswith(IMPLIED):
        return Difference(name, mine, theirs, isclose(mine, theirs, rel_tol=FOLLOWS), "follows from the terms above")
    return Difference(name, mine, theirs)


def _compared_object(
    name: str, mine: Mapping[str, Any], drawn: Mapping[str, Any], varied: "DisturbanceConfig"
) -> Difference:
    """Compare an object with those of which training drew one for every episode."""
    from td3robot.config.objects import AnyObjectConfig, ObjectConfig

    item, any_object, own = ObjectConfig.model_validate(mine), AnyObjectConfig.model_validate(drawn), ObjectConfig()
    (light, heavy), (least, most) = (
        getattr(varied, disturbance) or (getattr(own, key),) * 2
        for key, disturbance in (("mass_kg", "object_mass_kg"), ("friction", "object_friction"))
    )
    covered = any_object.covers(item) and light <= item.mass_kg <= heavy and least <= item.friction <= most
    allowed = (
        f"{any_object}, {light:g} to {heavy:g} kg heavy and with a friction of {least:g} to {most:g}, by training's "
        "any_object"
    )
    found = f"{item.words}, {item.mass_kg:g} kg heavy and with a friction of {item.friction:g}"
    return Difference(name, found, "any", covered, allowed)


def _compared_law(
    name: str, mine: Any, theirs: Any, here: Contract, trained: Contract, varied: "DisturbanceConfig"
) -> Difference:
    """Compare laws as training varied them: by factors on their lags, and on their damping ratios."""
    laws = _own_law(here.terms) | _law_of(here), _own_law(trained.terms) | _law_of(trained)
    if not all(law.keys() == set(LAW) for law in laws):
        return Difference(name, mine, theirs)  # older, and of an arm that is unknown here
    gain, lag = (laws[0][term] / laws[1][term] for term in LAW)
    lags, dampings = varied.servo_lag, varied.servo_damping_factor
    if lags == dampings == (1.0, 1.0):
        return Difference(name, laws[0][name], laws[1][name], False, "training varied no servo")
    covered = all(
        low - 1e-6 <= factor <= high + 1e-6 for factor, (low, high) in ((lag, lags), (lag * gain**0.5, dampings))
    )
    allowed = (
        f"its lag times {lags[0]:g} to {lags[1]:g} and its damping ratio times {dampings[0]:g} to {dampings[1]:g}, by "
        "training's servo_lag and servo_damping_factor"
    )
    return Difference(name, laws[0][name], laws[1][name], covered, allowed)


def _law_of(contract: Contract) -> dict[str, float]:
    """Return the terms of a contract's law; an older one has none."""
    robot = contract.terms["robot"]
    return {name: robot[key] for name in LAW if (key := name.removeprefix("robot.")) in robot}


def _own_law(terms: Mapping[str, Any]) -> dict[str, float]:
    """Return the terms of the law that a contract's arm has by itself, or nothing if the arm is unknown here."""
    from td3robot.registry import ARMS

    robot = terms.get("robot")
    arm = robot.get("arm") if isinstance(robot, Mapping) else None
    if not isinstance(arm, str) or arm not in ARMS:
        return {}
    return dict(zip(LAW, ARMS[arm].servo.law, strict=True))


def _object_size(contract: Contract) -> list[float]:
    size: list[float] = contract.terms["task"]["object"]["size_m"]
    return size


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _defaults(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the settings in a contract's sections, by dotted name."""
    # A policy loads without the classes of configurations; only a comparison needs them.
    from td3robot.config import ActionConfig, GuardConfig, Section
    from td3robot.config.task import chosen_task
    from td3robot.registry import TASKS

    sections: dict[str, Section] = {"action": ActionConfig(), "guard": GuardConfig()}
    own = terms["task"] if isinstance(terms.get("task"), Mapping) else {}
    task = own.get("name")
    if isinstance(task, str) and task in TASKS:
        # With any_object, there is no object by default.
        sections["task"] = chosen_task({key: own[key] for key in ("name", "any_object") if key in own})
    return _own_law(terms) | {
        f"{section}.{name}": value
        for section, config in sections.items()
        for name, value in config.model_dump(mode="json", exclude={"name", "any_object"}).items()
    }


def _is_same(a: Any, b: Any) -> bool:
    return not any(_differences("", a, b))


def _differences(prefix: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            name = f"{prefix}.{key}" if prefix else key
            yield from _differences(name, a.get(key), b.get(key))
    elif _is_layout(a) and _is_layout(b):
        if (first := Layout.from_json(a).first_difference(Layout.from_json(b))) is not None:
            yield f"{prefix}[{first[0]}]", *first[1:]
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(f"{prefix}[{index}]", x, y)
    elif isinstance(a, float) and isinstance(b, float):
        if not isclose(a, b, rel_tol=1e-9):  # other linear algebra kernels round differently
            yield prefix, a, b
    elif a != b:
        yield prefix, a, b


def _is_layout(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Mapping) and "components" in each for each in value)
