"""Settings changed when a run is resumed: which may change, and what is recorded."""

from typing import Any

from td3robot.config import RunConfig
from td3robot.config.disturbance import level_name
from td3robot.errors import ConfigError
from td3robot.format import flat

# These shape what was saved; if they changed, it would be another run's.
FIXED = (
    "name", "seed", "agent.kind", "agent.hidden", "agent.layer_norm",
    "agent.normalize_observations", "agent.average_tau", "agent.replay_capacity", "training.environments",
)  # fmt: skip
# Settings in which a resume may differ and still be exact: how far it goes, what it computes on, keeps, and waits for.
FREE = (
    "training.steps", "training.learner", "training.evaluators", "agent.device",
)  # fmt: skip


def recorded_change(before: RunConfig, after: RunConfig, step: int, why: str) -> dict[str, Any]:
    """Return the record of a change: ``step``, ``settings`` (name to value before and after) and ``why``.

    Raises:
        ConfigError: Nothing is changed, or something without which the saved run cannot be resumed.
    """
    settings = different_settings(before, after)
    if not settings:
        raise ConfigError("--set changes nothing: the run has these values already; leave --set and --changed out")
    for name in settings:
        if name in FIXED:
            raise ConfigError(
                f"{name} cannot be changed in a resumed run, because what was saved depends on it; begin a new run "
                "from its networks with --init-from"
            )
    return {"step": step, "settings": settings, "why": " ".join(why.split())[:1000]}


def different_settings(before: RunConfig, after: RunConfig) -> dict[str, list[Any]]:
    """Return the settings in which two runs differ, with both values, except those in ``FREE``."""
    old, new = flat(_values(before)), flat(_values(after))
    names = sorted(old.keys() | new.keys())
    return {
        name: [old.get(name), new.get(name)] for name in names if name not in FREE and old.get(name) != new.get(name)
    }


def _values(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings, with domain randomization by the name of its level, if it has one."""
    values = config.model_dump(mode="json")
    disturbance = getattr(config.environment, "disturbance", None)
    if disturbance is not None and (name := level_name(disturbance)) is not None:
        values["environment"]["disturbance"] = name
    return values
