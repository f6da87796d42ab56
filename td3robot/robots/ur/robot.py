"""A Universal Robots arm with a Robotiq gripper: the physical robot behind the same interface as the simulations.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any

import numpy as np

from td3robot.errors import RobotError
from td3robot.geometry import rotation_matrix
from td3robot.robots.cells.ur import UrCell
from td3robot.robots.driver.process import START_S, WorkerSpec
from td3robot.robots.driver.robot import DrivenRobot
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import Check, Status
from td3robot.robots.simulated.arm_spec import calibrated_arm
from td3robot.robots.ur import check as ur_check
from td3robot.robots.ur.calibration import Calibration, find_calibration, largest_difference, require_same_arm
from td3robot.robots.ur.generations import POLYSCOPE_5, model_names
from td3robot.robots.ur.link import UrLink, UrState
from td3robot.robots.ur.urcap import RobotiqGripper
from td3robot.state import Array, Pose

# If the whole controller is gone, the worker will say so within this, and knows better than the gripper [s].
WORKER_FIRST_S = 0.05


@dataclass(frozen=True, slots=True)
class UrStatus(Status):
    """What a UR reports in addition, for people and records.

    Attributes:
        safety_mode, robot_mode, runtime_state: The controller's numbers (RTDE guide).
        speed_slider: The pendant's slider, 0 to 1.
        speed_scaling: The controller's resulting scaling, 0 to 1.
    """

    safety_mode: int
    robot_mode: int
    runtime_state: int
    speed_slider: float
    speed_scaling: float


class UrRobot(DrivenRobot[UrState]):
    """A UR arm driven through ur_rtde in its own process, and a Robotiq gripper through its URCap.

    Once connected, ``spec`` has the arm's own calibration; kinematics made before must adopt it.

    Args:
        spec: The robot that it has to be.
        cell: Where it is and how it is driven.
        passive: Read only: no program is started on the controller, and the gripper is not moved.
        max_tcp_speed_m_s: Targets are played slower when the measured tool gets near this speed.
    """

    def __init__(self, spec: RobotSpec, cell: UrCell, passive: bool = False, max_tcp_speed_m_s: float = inf) -> None:
        super().__init__(spec, passive, max_tcp_speed_m_s)
        self.cell = cell
        self.calibration: Calibration | None = None
        self._nominal = spec
        self.gripper = RobotiqGripper(cell.ur.host, cell.gripper, spec.gripper, cell.recovery)

    def close(self) -> None:
        """Stop, end the program on the controller, and disconnect; the controller holds the arm."""
        super().close()
        self.gripper.close()

    @property
    def holds(self) -> bool:
        """Whether the gripper holds something."""
        return self.gripper.state().holds

    @property
    def state_period_s(self) -> float:
        """Nominal time between two measured states."""
        return 1.0 / self.cell.ur.rtde_rate_hz

    @property
    def max_state_age_s(self) -> float:
        """Age of the latest state above which the driver reports a fault."""
        return self.cell.ur.max_state_age_s

    def status(self) -> UrStatus:
        """Return what the controller reports besides the measured state; it contains a fault instead of raising it."""
        state = self.latest()
        return UrStatus(
            **self._status(),
            safety_mode=state.safety_mode,
            robot_mode=state.robot_mode,
            runtime_state=state.runtime_state,
            speed_slider=state.speed_slider,
            speed_scaling=state.speed_scaling,
        )

    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles [rad] and the controller's tool pose for them, both from when it was connected."""
        self._open_process()
        x, y, z, *vector = self.facts["tcp_pose"]
        return np.array(self.facts["q"]), Pose(np.array([x, y, z]), rotation_matrix(vector))

    def activate_gripper(self) -> None:
        """Activate the gripper, which closes and opens its fingers; only while the robot is not connected."""
        self.gripper.activate()

    def check_controller(self, check: Check) -> bool:
        """Check dashboard and gripper; return whether connecting makes sense."""
        return ur_check.check_controller(check, self.cell, self.spec)

    def check_settings(self, check: Check) -> None:
        """Check speed slider, payload and gripper calibration."""
        ur_check.check_settings(check, self)

    def figures(self) -> dict[str, float]:
        """Return every driver's figures, and quantiles of the gripper's response times [ms]."""
        return super().figures() | self.gripper.figures()

    @property
    def _name(self) -> str:
        return f"the UR arm at {self.cell.ur.host}"

    def _worker(self, fault_age_s: float | None) -> WorkerSpec[UrState]:
        config = self.cell.ur
        recover_after_s = None if fault_age_s is None else max(0.0, POLYSCOPE_5.unlock_after_s - fault_age_s)
        connect_s = START_S + 2.0 * config.connect_timeout_s + (recover_after_s or 0.0)
        return WorkerSpec(
            link=UrLink,
            settings={"models": model_names(self.spec.arm)} | config.model_dump(mode="json", exclude_none=True),
            stream=self._stream(config, config.rtde_rate_hz, recover_after_s),
            extra="ur",
            purpose="driving a UR arm",
            connect_s=connect_s,
            too_slow=f"the arm's worker process did not connect within {connect_s:.0f} s",
            when_gone="the controller's watchdog stops the arm",
        )

    def _opened(self) -> None:
        self._calibrate()
        self.facts |= self._kinematics_facts()
        try:
            self.gripper.connect()
        except RobotError as error:
            if not self.passive:
                raise
            self.gripper.fault = str(error)  # to read the arm, the gripper need not be ready

    def _fingers(self, state: UrState) -> Array:
        fingers = self.gripper.state()
        age, limit = monotonic() - fingers.stamp, self.cell.gripper.max_age_s
        if age > limit:
            raise self._failed(f"the gripper has not answered for {age:.2f} s (limit {limit:g} s)")
        return self.spec.gripper.drivers_at(fingers.closed)

    def _grip(self, closed: float) -> None:
        self.gripper.command(closed)

    def _require_gripper(self) -> None:
        if (reason := self.gripper.fault) is not None:
            self._faulted.wait(WORKER_FIRST_S)
            raise self._failed(reason)

    def _require_startable(self, state: UrState) -> None:
        if not state.speed_slider >= self.cell.ur.min_speed_scaling:
            raise RobotError(
                f"the pendant's speed slider is at {100 * state.speed_slider:.0f} %, below "
                f"ur.min_speed_scaling {100 * self.cell.ur.min_speed_scaling:.0f} %: the arm would lag behind what "
                "it is sent; set the slider to 100 % and limit speeds in the guard instead"
            )

    def _calibrate(self) -> None:
        """Use this arm's own kinematics from now on, if the cell asks for that."""
        calibration = find_calibration(self.cell.ur)
        if calibration is None:
            return
        if self.calibration is not None and calibration.checksum != self.calibration.checksum:
            raise RobotError(
                f"the kinematics of {calibration.source} changed from {self.calibration.checksum} to "
                f"{calibration.checksum} since this program read them: another arm, or calibrated anew; start again"
            )
        if self.calibration is not None:
            return
        require_same_arm(self._nominal.arm, calibration)
        self.calibration = calibration
        self.spec = replace(self._nominal, arm=calibrated_arm(self._nominal.arm, calibration.chain))

    def _kinematics_facts(self) -> dict[str, Any]:
        """Return which kinematics are used, and how far off the nominal ones would be."""
        if self.calibration is None:
            return {"kinematics": "nominal", "calibration": None}
        spec = self._nominal
        away = largest_difference(spec.arm, self.calibration.chain, spec.tcp_offset_m)
        return {
            "kinematics": self.calibration.source,
            "calibration": self.calibration.checksum,
            "nominal_tool_error_mm": round(1e3 * away, 2),
        }
