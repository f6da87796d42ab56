"""One robot and a policy's environment on it: opened once, checked, watched, and then played on."""

import gc
from collections.abc import Callable
from time import monotonic, sleep
from types import TracebackType
from typing import Any, ClassVar, Self

from td3robot.build import make_robot_env, object_bounds, robot_spec
from td3robot.config import DisturbanceConfig, RobotEnvironmentConfig
from td3robot.deploy.check import check_contract, check_robot, check_values
from td3robot.deploy.loaded_policy import LoadedPolicy
from td3robot.deploy.operator import Operator
from td3robot.deploy.session import Session
from td3robot.deploy.trained import check_camera, check_gripper_speed
from td3robot.envs.playing import Act
from td3robot.envs.robot_env import RobotEnv
from td3robot.errors import RobotError
from td3robot.processes import tune_gc
from td3robot.records import Record
from td3robot.robots.cells import CellConfig
from td3robot.robots.interface import Robot, require_same_arm
from td3robot.robots.objects import Objects
from td3robot.robots.physical import Check, PhysicalRobot
from td3robot.state import Array, JointCommand, RobotState


class Station:
    """A cell set up for one environment, as a context manager.

    Its robot is opened for reading, and takes control only when a session that moves it begins: until a policy has
    passed its check and the stage below, no program runs on the controller.

    Args:
        config: The environment, at the speed to play it.
        cell: Where it is loaded.
        objects: Source of object poses, if the cell has none or a better one is available.

    Attributes:
        robot: The driver, the same for check, shadow and play.
        environment: The task on that robot.
    """

    def __init__(self, config: RobotEnvironmentConfig, cell: CellConfig, objects: Objects | None = None) -> None:
        require_same_arm(config.robot, cell.robot, "cell")
        config = config.in_cell(cell.robot, cell.object)
        self._config, self._cell = config, cell
        spec = robot_spec(cell.robot)
        if objects is None and config.task.objects():
            objects = cell.objects(object_bounds(config, spec))
        self._objects = objects
        self.robot = cell.driver(spec, True, config.guard.max_tcp_speed_m_s)
        self.robot.max_contact_force_n = config.guard.max_contact_force_n
        self.environment = self._on(self.robot)
        # A full collection stalls the threads that talk to an opened robot; those after this one are short.
        tune_gc()

    def check(self, loaded: LoadedPolicy | None, seconds: float, goal: Array | None = None) -> Check:
        """Compare a policy, if there is one, with its cell, and check the robot, which is left open.

        Args:
            loaded: The policy, with its contract from training; the limits of this station may be lower.
            seconds: How long to watch the robot's states.
            goal: The numbers (k,) of a given goal [m, rad], or None.
        """
        check = Check()
        if loaded is not None:
            here = self._on(self.robot, loaded.environment).contract()
            training = f"train for this one, which takes minutes: {loaded.training_in(self._cell)}"
            check_contract(check, loaded.policy, here, training)
        check_values(check, self._cell)
        check_robot(check, self.robot, self.environment, seconds, goal)
        if loaded is not None:
            self._check_trained(check, loaded.environment.disturbance)
        return check

    def session(
        self,
        mode: str,
        act: Act,
        record: Record,
        operator: Operator,
        on_episode: Callable[[int], None] = lambda number: None,
    ) -> Session:
        """Begin a session: ``shadow`` sends nothing, every other mode takes control of the robot.

        Raises:
            RobotError: The robot cannot be controlled; nothing was moved.
        """
        if mode == "shadow":
            return Session(self._on(ShadowRobot(self.robot)), act, record, operator, mode, on_episode)
        self.robot.take_control()
        return Session(self.environment, act, record, operator, mode, on_episode)

    def figures(self) -> dict[str, float]:
        """Return the driver's own figures, if it still answers."""
        try:
            return self.robot.figures()
        except RobotError:
            return {}

    def tracker_figures(self) -> dict[str, Any] | None:
        """Return the tracker's own figures, or None if it has none."""
        return None if self._objects is None else self._objects.figures()

    def close(self) -> None:
        """Stop and release the robot. May be repeated."""
        self.environment.close()
        gc.unfreeze()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_trained(self, check: Check, trained: DisturbanceConfig) -> None:
        """Compare camera and gripper, which are in no contract, with what a policy was trained for."""
        spec = self.robot.spec
        if self.environment.action_kind.uses_gripper:
            check_gripper_speed(check, self._cell.gripper_speed(spec.gripper), trained)
        if (objects := self._objects) is not None:
            check.answers("camera", lambda: check_camera(check, objects, trained, spec.control_rate_hz))

    def _on(self, robot: Robot, config: RobotEnvironmentConfig | None = None) -> RobotEnv:
        """Build an environment on a robot; it opens nothing."""
        return make_robot_env(config or self._config, cell=self._cell, objects=self._objects, robot=robot)


class ShadowRobot(Robot):
    """Read an arm that was opened for reading only, and drop every command.

    Attributes:
        watched: The arm.
        missed_ticks: Control periods that were over before ``advance`` was called.
    """

    teleports: ClassVar[bool] = False

    def __init__(self, watched: PhysicalRobot) -> None:
        super().__init__(watched.spec)
        self.watched, self.missed_ticks = watched, 0
        self._due: float | None = None

    def connect(self) -> None:
        """Open the arm for reading."""
        self.watched.connect()
        self.spec = self.watched.spec

    def read(self) -> RobotState:
        """Return the arm's state."""
        return self.watched.read()

    def now(self) -> float:
        """Return this computer's monotonic time [s]."""
        return self.watched.now()

    @property
    def fault(self) -> str | None:
        """The arm's latched fault, or None."""
        return self.watched.fault

    def _send(self, command: JointCommand) -> None:
        """Drop the command."""

    def advance(self) -> None:
        """Wait for the next tick of the control clock."""
        now, period = monotonic(), self.spec.period_s
        due = (now if self._due is None else self._due) + period
        if now > due:
            self.missed_ticks += 1
            due = now
        self._due = due
        sleep(due - now)

    def move_to(self, q: Array) -> None:
        """Do nothing: a shadow does not move the arm."""

    def stop(self) -> None:
        """Do nothing: nothing was started."""
        self._due = None

    def close(self) -> None:
        """Release the arm."""
        self.watched.close()
