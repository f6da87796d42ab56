"""Opens the source for the argument of ``td3robot view``."""

from pathlib import Path

import numpy as np
import yaml

from td3robot import catalog
from td3robot.build import make_robot_env, robot_spec
from td3robot.config import RobotEnvironmentConfig, RunConfig, load_config
from td3robot.errors import ConfigError
from td3robot.format import joint_name
from td3robot.policy.checkpoint import MANIFEST, Checkpoint
from td3robot.policy.listing import is_run
from td3robot.records import FILE
from td3robot.robots.cells import CellConfig, load_cell
from td3robot.robots.kinematics import Kinematics
from td3robot.view.episodes import HOLD_S, Act, AtRandom, Episodes, at_rest
from td3robot.view.record import Recorded
from td3robot.view.source import Snapshot, Source, Workcell
from td3robot.view.training import Run, require_robot

# How often an arm is read [s].
ARM_PERIOD_S = 0.05


def open_target(target: str, seed: int, follow: bool) -> Source:
    """Open a run, a checkpoint (released ones by name), a record, a cell's file, or a configuration.

    Args:
        target: A path, or the name of a released policy.
        seed: Seed of the episodes to play.
        follow: Whether another program is writing it now, so that it may still be empty.

    Raises:
        Td3RobotError: There is nothing with that name, or it cannot be shown.
    """
    path = _named(Path(target))
    if path.suffix in (".yaml", ".yml"):
        return _configuration(path, seed) if _is_run_configuration(path) else LiveArm(load_cell(path), path.stem)
    if path.suffix == ".jsonl" or (path / FILE).is_file():
        return Recorded(path, follow or None)
    if (path / MANIFEST).is_file():
        return _checkpoint(path, seed)
    if not path.exists():
        known = ", ".join(sorted(catalog.policies()))
        raise ConfigError(
            f"there is nothing to see at {target!r}: give a run, a checkpoint, a record, a cell's file, a "
            f"configuration, or the name of a released policy ({known})"
        )
    if path.is_dir() and (follow or is_run(path)):
        return Run(path, seed)
    if path.is_dir() and not any(path.iterdir()):
        raise ConfigError(f"{path} is empty: no training has written into it yet; start one with td3robot train")
    raise ConfigError(
        f"{path} is neither a run (metrics.csv, checkpoints), a checkpoint ({MANIFEST}), nor a record ({FILE})"
    )


def _named(path: Path) -> Path:
    """Return a path, or what it names if there is no such path: a policy first, then a configuration, then a cell."""
    for look in (catalog.policy, catalog.configuration, catalog.cell):
        if (found := look(path)).exists():
            return found
    return path


def _is_run_configuration(path: Path) -> bool:
    """Whether a YAML file is a run's configuration rather than a cell."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return True  # its reader says what is wrong
    return isinstance(values, dict) and bool(values.keys() & (RunConfig.model_fields.keys() - {"name"}))


def _configuration(path: Path, seed: int) -> Source:
    config = require_robot(load_config(path).environment, path)
    environment = make_robot_env(config)
    size = environment.action_kind.layout.size
    controllers: dict[str, Act] = {
        "nothing": at_rest(size),
        "random actions": AtRandom(size, environment.robot.spec.periods(HOLD_S)),
    }
    return Episodes(config, environment, controllers, path.stem, "a configuration, in simulation; no policy acts", seed)


def _checkpoint(path: Path, seed: int) -> Source:
    saved = Checkpoint(path)
    run, policy = saved.config(), saved.policy()
    config = require_robot(run.environment, path)
    environment = make_robot_env(config)
    policy.require(environment)
    return Episodes(config, environment, {"the policy": policy.act}, run.name, "a policy in simulation", seed)


class LiveArm(Source):
    """The state that a cell's controller reports.

    Args:
        cell: How to reach the arm. It is opened passive: no program starts on the controller, and nothing moves.

    Raises:
        RobotError: It cannot be reached.
    """

    kind = "the arm as it reports itself; opened for reading only"

    def __init__(self, cell: CellConfig, title: str) -> None:
        self.title = title
        self._workspace = RobotEnvironmentConfig(robot=cell.robot).guard.workspace
        self._robot = cell.driver(robot_spec(cell.robot), passive=True)
        try:
            self._robot.connect()
        except BaseException:
            self._robot.close()
            raise
        self._kinematics = Kinematics(self._robot.spec)

    @property
    def workcell(self) -> Workcell:
        """The arm, with its own kinematics if the controller reports them."""
        return Workcell(self._robot.spec, (), self._workspace)

    def advance(self) -> Snapshot:
        """Read the arm.

        Raises:
            RobotError: It no longer reports, or has latched a fault.
        """
        status, state, spec = self._robot.status(), self._robot.read(), self._robot.spec
        x, y, z = 1e3 * self._kinematics.tcp(state.q).position
        angles = zip(spec.arm.joint_names, np.degrees(state.q), strict=True)
        caption = (
            f"Read-only; the state is {1e3 * status.state_age_s:.0f} ms old",
            f"Tool at ({x:.0f}, {y:.0f}, {z:.0f}) mm in the base frame",
            ", ".join(f"{joint_name(name)} {angle:.1f}°" for name, angle in angles),
            f"Gripper {spec.gripper.closed_fraction(state.driver_q):.0%} closed".replace("%", " %"),
        )
        return Snapshot(state, caption=caption, lasts_s=ARM_PERIOD_S)

    def close(self) -> None:
        """Release the arm."""
        self._robot.close()
