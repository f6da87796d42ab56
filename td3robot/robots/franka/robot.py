"""An FR3 with its hand: the physical robot, or its stand-in, behind the interface of all physical arms.

Nothing here is a safety function. The robot's own safety configuration comes first, and has to be set up for the cell.
"""

import socket
from importlib.util import find_spec
from math import inf, pi
from time import perf_counter
from typing import ClassVar

import numpy as np

from td3robot.errors import MissingExtraError, RobotError
from td3robot.geometry import about_vertical
from td3robot.robots.cells.franka import FrankaCell
from td3robot.robots.driver.link import StoppedError
from td3robot.robots.driver.process import WorkerSpec
from td3robot.robots.driver.robot import DrivenRobot
from td3robot.robots.franka.link import ROBOT_PORT, FrankaLink, FrankaState, home_hand
from td3robot.robots.interface import RobotSpec
from td3robot.robots.physical import ATTENTION, Check
from td3robot.state import Array, Pose

# Rotation about z from the hand's frame, which Desk's tool has, to one whose x axis is the fingers' direction [rad].
HAND_TURN = pi / 2
# How long the control box may take to accept a connection [s].
ACCEPT_S = 2.0


class FrankaRobot(DrivenRobot[FrankaState]):
    """An FR3 driven through franka-rs in its own process, with the Franka Hand.

    Drivers are the two finger joints, right then left [m]: 0.04 open, 0 closed.

    Args:
        spec: The robot that it has to be.
        cell: Where it is and how it is driven.
        passive: Read only: no motion is opened, and the hand is not moved.
        max_tcp_speed_m_s: Not monitored: the link reports no tool speed.
    """

    console: ClassVar[str] = "Desk"

    def __init__(
        self, spec: RobotSpec, cell: FrankaCell, passive: bool = False, max_tcp_speed_m_s: float = inf
    ) -> None:
        super().__init__(spec, cell.franka, passive, max_tcp_speed_m_s)
        self.cell, self.config = cell, cell.franka

    def activate_gripper(self) -> None:
        """Home the hand, which closes and opens its fingers; only while the robot is not connected.

        Raises:
            RobotError: The robot is connected, or the hand did not become ready.
            MissingExtraError: franka-rs is not installed.
        """
        if self._process is not None:
            raise RobotError("the hand is made ready while the robot is not connected; call close() first")
        if not self.config.hand:
            return
        try:
            home_hand(self.config.host)
        except StoppedError as stop:
            raise RobotError(stop.reason) from None
        except ImportError:
            raise MissingExtraError("franka", "driving a Franka arm") from None

    def reported_tool(self) -> tuple[Array, Pose]:
        """Return joint angles [rad] and the robot's own tool pose for them, both from when it was connected."""
        self._open_process()
        pose = np.array(self.facts["tool_pose"]).reshape(4, 4)
        return np.array(self.facts["q"]), Pose(pose[:3, 3].copy(), pose[:3, :3] @ about_vertical(HAND_TURN))

    def check_controller(self, check: Check) -> bool:
        """Check that the control box answers and franka-rs is installed; return whether connecting makes sense."""
        here = find_spec("franka") is not None
        check.add("client", "franka-rs", "found" if here else "missing", here, "run: pip install 'td3robot[franka]'")
        if not here:
            return False
        begin = perf_counter()
        try:  # once: the control box takes each connection for a client, and has room for one
            socket.create_connection((self.config.host, ROBOT_PORT), ACCEPT_S).close()
        except OSError as error:
            check.add(
                "controller", f"a Franka control box at {self.config.host}", "nobody", False,
                f"{error.strerror or error}: see to franka.host and the cable, and activate FCI in Desk",
            )  # fmt: skip
            return False
        check.measured("arm_round_trip_ms", [perf_counter() - begin])
        check.add("controller", f"a Franka control box at {self.config.host}", "it answers", True, "")
        return True

    def check_settings(self, check: Check) -> None:
        """Check mode, errors, payload and hand."""
        mode, errors = self.facts["mode"], ", ".join(self.facts["errors"])
        what = "open the brakes and activate FCI in Desk; after a reflex: recover"
        check.add("mode", "idle", mode, mode == "idle", what)
        check.add("errors", "none", errors or "none", not errors, f"find the cause; then: {self.cell.recovery}")
        known = self.config.serial_number
        check.add(
            "serial number", "in the cell's file", known or "not given", bool(known),
            "copy it from the robot's label to franka.serial_number; FCI does not report it", ATTENTION,
        )  # fmt: skip
        check.payload(self.facts["tool_mass_kg"], self.spec.gripper.mass_kg, "choose the end effector in Desk")

    @property
    def holds(self) -> bool:
        """Whether the hand holds something."""
        return bool(self.latest().grasped)

    @property
    def _name(self) -> str:
        return f"the FR3 at {self.config.host}"

    def _worker(self, fault_age_s: float | None) -> WorkerSpec[FrankaState]:
        config = self.config
        return WorkerSpec(
            link=FrankaLink,
            settings=config.model_dump(mode="json"),
            stream=self._stream(None if fault_age_s is None else 0.0),
            extra="franka",
            purpose="driving a Franka arm",
            connect_s=config.connect_timeout_s,
            too_slow=f"the control box at {config.host} did not let us in within {config.connect_timeout_s:g} s: it "
            "has room for one client, and another program may be connected; end that first",
            when_gone="the robot stops where its commands stay away",
        )

    def _opened(self) -> None:
        self.facts |= {"serial_number": self.config.serial_number or f"fr3 at {self.config.host}"}

    def _resting(self, state: FrankaState) -> Array:
        return np.array(state.target)  # the motion stays open, and the arm rests on it

    def _fingers(self, state: FrankaState) -> Array:
        return np.full(2, min(state.width / 2.0, self.spec.gripper.driver_open))
