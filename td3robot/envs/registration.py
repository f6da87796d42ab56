"""Environments released under a Gymnasium id, and how a caller overrides their configuration.

``gymnasium.make(id, **overrides)`` takes ``render_mode`` and ``practice`` (see ``build.make_robot_env``), and every
field of the environment's configuration; pass parts of a section as nested mappings::

    gymnasium.make("td3robot/UR5eReach-v0", disturbance="real", task={"tolerance_m": 0.02}, episode_s=8.0)

Importing the package registers the ids, without importing Gymnasium, which takes longer than loading a policy: if
nothing has imported it yet, they are registered when something does.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader


def with_overrides(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's values with overrides: mappings are merged key by key, anything else is replaced."""
    merged = dict(values)
    for key, value in overrides.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = with_overrides(before, value) if both else value  # type: ignore[arg-type]  # they are
    return merged


# The released grasps: how they close their gripper, how they practise, and how actions move the arm.
GRASP: Mapping[str, Any] = {
    "task": {
        "name": "grasp",
    },
    "action": {"exponent": 3.0},
    "episode_s": 12.0,
}
# One row per id: what the ``environment`` section of its configuration in configs/ changes from the defaults, without
# the domain randomization of a released policy. Where that changes, a new version replaces the old one.
RELEASED: Mapping[str, Mapping[str, Any]] = {
    "td3robot/UR5eReach-v0": {},
    "td3robot/UR3eReach-v0": {"robot": {"arm": "ur3e"}},
    "td3robot/UR10eReach-v0": {"robot": {"arm": "ur10e"}},
    "td3robot/FR3Reach-v0": {
        "robot": {"arm": "fr3", "gripper": "franka_hand"},
    },
    "td3robot/UR5eGrasp-v1": with_overrides(GRASP, {"robot": {"physics_rate_hz": 260.0}}),
    "td3robot/UR5eGraspAny-v0": with_overrides(
        GRASP, {"robot": {"physics_rate_hz": 260.0}, "task": {"any_object": {}}}
    ),
    "td3robot/UR5ePlace-v0": {
        "robot": {"physics_rate_hz": 260.0},
        "task": {"name": "place"},
        "action": {"exponent": 3.0},
        "episode_s": 16.0,
    },
    "td3robot/UR5eStack-v0": {
        "robot": {"physics_rate_hz": 260.0},
        "task": {"name": "stack"},
        "action": {"exponent": 3.0},
        "episode_s": 16.0,
    },
    "td3robot/UR5ePush-v0": {
        "robot": {"physics_rate_hz": 260.0},
        "task": {"name": "push"},
        "action": {"exponent": 3.0},
        "episode_s": 16.0,
    },
    "td3robot/UR5eReachPose-v0": {"task": {"name": "reach_pose"}, "episode_s": 6.0},
    "td3robot/UR10eGrasp-v1": with_overrides(
        GRASP,
        {
            "robot": {"arm": "ur10e", "gripper": "robotiq_2f140"},
            "task": {"object": {"size_m": (0.06, 0.06, 0.06), "mass_kg": 0.2}, "rewards": {"press": 3.0}},
        },
    ),
    "td3robot/FR3Grasp-v1": with_overrides(
        GRASP,
        {
            "robot": {"arm": "fr3", "gripper": "franka_hand", "physics_rate_hz": 260.0},
            "task": {
                "close_within_m": 0.016,
                "patch_low": (-0.2, 0.35),
                "patch_high": (0.2, 0.65),
                "rewards": {"press": 3.0},
            },
        },
    ),
}


def register() -> None:
    """Register every released environment with Gymnasium: now if it is imported, otherwise when it is."""
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AtImport())


def _register() -> None:
    import gymnasium

    for released in RELEASED:
        gymnasium.register(id=released, entry_point="td3robot.build:make_released", kwargs={"released": released})


class _AtImport:
    """Finds Gymnasium where the other finders do, and has it loaded by :class:`_RegisteringLoader`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return Gymnasium's specification, None for any other module and where Gymnasium is loaded again."""
        if name != "gymnasium" or name in sys.modules:
            return None
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)  # type: ignore[assignment]  # a loader by its methods
        return spec


class _RegisteringLoader:
    """Loads Gymnasium by its own loader, and then registers the environments."""

    def __init__(self, own: "Loader") -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module."""
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, whose loader is its own again, and register."""
        module.__loader__ = self.own
        if module.__spec__ is not None:
            module.__spec__.loader = self.own
        self.own.exec_module(module)
        _register()
