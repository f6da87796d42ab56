"""A Universal Robots arm with a Robotiq gripper: the physical robot behind the same interface as the simulations.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from td3robot.errors import RobotError
from td3robot.geometry import rotation_matrix
from td3robot.robots.cells.ur import UrCell
from td3robot.robots.driver.process import START_S, WorkerSpec
from td3robot.robots.driver.robot import DrivenRobot
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import ATTENTION, Check, Status, in_words, round_trips
from td3robot.robots.simulated.arm_spec import calibrated_arm
from td3robot.robots.ur.calibration import Calibration, find_calibration, largest_difference, require_same_arm
from td3robot.robots.ur.connection import DashboardClient
from td3robot.robots.ur.generations import WHICH, generation_of, model_names
from td3robot.robots.ur.link import UrLink, UrState
from td3robot.robots.ur.urcap import RobotiqGripper, UrCapSocket
from td3robot.state import Array, Pose

# If the whole controller is gone, the worker will say so within this, and knows better than the gripper [s].
WORKER_FIRST_S = 0.05
# A count this far beyond the calibrated range is not noise.
COUNTS = 3


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

    status_type: ClassVar[type[Status]] = UrStatus

    def __init__(self, spec: RobotSpec, cell: UrCell, passive: bool = False, max_tcp_speed_m_s: float = inf) -> None:
        super().__init__(spec, cell.ur, passive, max_tcp_speed_m_s)
        usual = model_names(spec.arm)  # also if the cell names others: refuses arms that are not driven
        self.cell, self._models = cell, cell.ur.models or usual
        self._generation = generation_of(spec.arm.name)
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

    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles [rad] and the controller's tool pose for them, both from when it was connected."""
        self._open_process()
        x, y, z, *vector = self.facts["tcp_pose"]
        return np.array(self.facts["q"]), Pose(np.array([x, y, z]), rotation_matrix(vector))

    def activate_gripper(self) -> None:
        """Activate the gripper, which closes and opens its fingers; only while the robot is not connected."""
        self.gripper.activate()

    def check_controller(self, check: Check) -> bool:
        """Check dashboard and gripper, each whatever the other says; connecting makes sense anyway."""
        try:
            self._check_dashboard(check)
        except RobotError as error:
            check.add("controller", f"a UR at {self.cell.ur.host}", "no dashboard", False, str(error))
        check.answers("gripper answers", lambda: self._check_gripper_answers(check))
        return True

    def check_settings(self, check: Check) -> None:
        """Check speed slider, payload, kinematics and gripper calibration of the connected robot."""
        slider, least = self.latest().speed_slider, self.cell.ur.min_speed_scaling
        check.add(
            "speed slider", f"at least {100 * least:.0f} %", f"{100 * slider:.0f} %", slider >= least,
            "set it to 100 % at the pendant, and limit speeds with --speed",
        )  # fmt: skip
        check.payload(
            self.facts["payload_kg"], self.spec.gripper.mass_kg, "set the payload at the pendant to the gripper's mass"
        )
        self._check_kinematics(check)
        gripper = self.gripper
        if gripper.fault is not None:
            check.add("gripper", "active, and answering", "not ready", False, gripper.fault)
            return
        count, low, high = gripper.state().count, gripper.open_count, gripper.closed_count
        check.add(
            "gripper calibration", f"counts {low} open to {high} closed", f"now at {count}",
            low - COUNTS <= count <= high + COUNTS,
            "open and close the gripper at the pendant, and set gripper.open_count and closed_count to what it reports",
        )  # fmt: skip

    def figures(self) -> dict[str, float]:
        """Return every driver's figures, and quantiles of the gripper's response times [ms]."""
        return super().figures() | self.gripper.figures()

    @property
    def _name(self) -> str:
        return f"the UR arm at {self.cell.ur.host}"

    def _worker(self, fault_age_s: float | None) -> WorkerSpec[UrState]:
        config = self.cell.ur
        recover_after_s = None if fault_age_s is None else max(0.0, self._generation.unlock_after_s - fault_age_s)
        connect_s = START_S + 2.0 * config.connect_timeout_s + (recover_after_s or 0.0)
        return WorkerSpec(
            link=UrLink,
            settings=config.model_dump(mode="json", exclude_none=True)
            | self.spec.law._asdict()
            | {"models": self._models, "generation": self._generation.name},
            stream=self._stream(recover_after_s),
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

    def _check_dashboard(self, check: Check) -> None:
        cell, driven, models = self.cell, self._generation, self._models
        dashboard = DashboardClient(cell.ur.host, cell.robot.arm)
        try:
            said = {what: dashboard.ask(command) for what, command in driven.commands.items()}
            model, serial = said["model"], said["serial_number"]
            mode, safety = said["robot_mode"].rpartition(" ")[2], said["safety"].rpartition(" ")[2]
            version = dashboard.ask(WHICH)
            check.facts |= {"serial_number": serial, "model": model, "polyscope": version}
            check.measured("arm_round_trip_ms", round_trips(lambda: dashboard.ask(driven.commands["robot_mode"])))
        finally:
            dashboard.close()
        check.add("model", " or ".join(models), model, model in models, "check ur.host, robot.arm and ur.models")
        check.add(
            "PolyScope", driven.name, version, version.startswith(driven.answer),
            f"only PolyScope {driven.name} was tried", ATTENTION,
        )  # fmt: skip
        check.add("robot mode", "RUNNING", mode, mode == "RUNNING", "power the arm on and release its brakes")
        check.add(
            "safety", "NORMAL or REDUCED", safety, safety in ("NORMAL", "REDUCED"),
            f"find the cause; after a protective stop: {cell.recovery}",
        )  # fmt: skip
        if (remote := said.get("remote")) is not None:
            on = {"true": "on", "false": "off"}.get(remote, remote)
            check.add("remote control", "on", on, on == "on", "switch to remote control at the pendant")

    def _check_kinematics(self, check: Check) -> None:
        """Report whose kinematics the guard uses, and how far off the data sheet's would be."""
        facts, own = self.facts, self.calibration is not None
        found = "those of the data sheet"
        if own:
            found = (
                f"those of {facts['kinematics']} (checksum {facts['calibration']}); the data sheet's are up to "
                f"{facts['nominal_tool_error_mm']:.1f} mm off at the tool"
            )
        check.add(
            "kinematics", "the arm's own", found, own,
            "set ur.calibration to controller: arms differ from the data sheet by up to centimetres", ATTENTION,
        )  # fmt: skip

    def _check_gripper_answers(self, check: Check) -> None:
        cell = self.cell
        link = UrCapSocket(cell.ur.host, cell.gripper.port, cell.gripper.answer_timeout_s)
        try:
            found = check.measured("gripper_round_trip_ms", round_trips(lambda: link.get("POS")))
        finally:
            link.close()
        assert found is not None
        limit = 1e3 * cell.gripper.answer_timeout_s / 2
        check.add(
            "gripper answers", f"within {limit:g} ms", in_words(found), found["max"] < limit, "see to network and URCap"
        )
