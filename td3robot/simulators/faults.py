"""Faults on request: started at a time, in an episode, or from the lab, and ended when their time is over."""

import os
import signal

from td3robot.simulators import fault_kinds as kinds
from td3robot.simulators.controller import Controller
from td3robot.simulators.loop import Loop
from td3robot.simulators.network import Line
from td3robot.simulators.vision import VisionSystem


class Faults:
    """The faults of one stand-in."""

    def __init__(
        self,
        planned: tuple[kinds.AnyFault, ...],
        controller: Controller,
        line: Line,
        loop: Loop,
        vision: VisionSystem,
    ) -> None:
        self._controller, self._line = controller, line
        self._loop, self._vision = loop, vision
        self._of_episodes = [fault for fault in planned if fault.episode is not None]
        self._waiting = [(fault.at_s, fault) for fault in planned if fault.episode is None]
        self._active: list[tuple[float, kinds.AnyFault]] = []

    def request(self, fault: kinds.AnyFault) -> None:
        """Begin a fault ``at_s`` from now."""
        self._waiting.append((self._controller.time_s + fault.at_s, fault))

    def begin_episode(self, number: int) -> None:
        """Schedule the faults of an episode, each at its time from now."""
        for fault in self._of_episodes:
            if fault.episode == number:
                self.request(fault)

    def clear(self) -> None:
        """End active faults, and drop those requested for later."""
        self._waiting = []
        for _, fault in self._active:
            self._end(fault)
        self._active = []

    def tick(self) -> None:
        """Begin and end the faults that are due."""
        now = self._controller.time_s
        for item in [item for item in self._waiting if item[0] <= now]:
            self._waiting.remove(item)
            fault = item[1]
            self._controller.note(f"fault: {fault.kind}")
            self._active.append((now + fault.for_s, fault))
            self._begin(fault)
        for item in [item for item in self._active if item[0] <= now]:
            self._active.remove(item)
            self._end(item[1])

    def _begin(self, fault: kinds.AnyFault) -> None:
        controller = self._controller
        match fault:
            case kinds.ClosedSockets():
                self._loop.set_accepting(fault.service, False)
                self._loop.close_connections(fault.service)
            case kinds.KilledProcess():
                os.kill(os.getpid(), signal.SIGKILL)
            case kinds.ProtectiveStop():
                controller.protective_stop("as a fault asked for")
            case kinds.EmergencyStop():
                controller.emergency_stop()
            case kinds.LocalMode():
                controller.set_remote(False)
            case kinds.SpeedSlider():
                controller.inputs.slider = fault.fraction
            case kinds.RefusedServoj():
                controller.refusing = fault.how
            case kinds.ObjectLost():
                controller.arm.set_slippery(True)
            case kinds.WrongModel():
                controller.model = fault.model
            case kinds.GripperNotActivated():
                controller.gripper.deactivate()
                controller.gripper.can_activate = False
            case kinds.GripperSilent():
                controller.gripper_silent = True
            case kinds.TrackerSilent():
                self._vision.silent = True
            case kinds.TrackerJump():
                self._vision.offset_m = fault.offset_m
            case _:
                self._disturb(fault)

    def _disturb(self, fault: kinds.AnyFault) -> None:
        line = self._line
        match fault:
            case kinds.Latency():
                line.delay_s, line.jitter_s = fault.delay_s, fault.jitter_s
            case kinds.DroppedPackets():
                line.drop = fault.probability
            case kinds.DelayedPackets():
                line.hiccup, line.hiccup_s = fault.probability, fault.delay_s
            case kinds.FrozenStream():
                line.frozen, line.repeating = not fault.repeat, fault.repeat

    def _end(self, fault: kinds.AnyFault) -> None:
        controller, line = self._controller, self._line
        match fault:
            case kinds.Latency():
                line.delay_s, line.jitter_s = line.model.delay_s, line.model.jitter_s
            case kinds.DroppedPackets():
                line.drop = 0.0
            case kinds.DelayedPackets():
                line.hiccup, line.hiccup_s = line.model.hiccup, line.model.hiccup_s
            case kinds.FrozenStream():
                line.frozen = line.repeating = False
            case kinds.ClosedSockets():
                self._loop.set_accepting(fault.service, True)
            case kinds.LocalMode():
                controller.set_remote(True)
            case kinds.SpeedSlider():
                controller.inputs.slider = 1.0
            case kinds.RefusedServoj():
                controller.refusing = None
            case kinds.ObjectLost():
                controller.arm.set_slippery(False)
            case kinds.WrongModel():
                controller.model = controller.config.model
            case kinds.GripperNotActivated():
                controller.gripper.can_activate = True
            case kinds.GripperSilent():
                controller.gripper_silent = False
            case kinds.TrackerSilent():
                self._vision.silent = False
            case kinds.TrackerJump():
                self._vision.offset_m = (0.0, 0.0, 0.0)
            case _:
                pass  # it happened at one instant
