"""The control script that ur_rtde uploads, as a state machine.

URScript is not interpreted. ur_rtde's script reads a command's number from an input register and answers in an output
register; this module reimplements that machine, for exactly the scripts whose SHA-256 is known.
"""

from collections.abc import Callable, Sequence

import numpy as np

from td3robot.geometry import compose, rotation_matrix
from td3robot.robots.ur import JOINTS
from td3robot.simulators.arm import PERIOD_S, six
from td3robot.simulators.controller import Controller, Watchdog
from td3robot.simulators.motion import Brake, Motion, Move, Speed
from td3robot.state import Array, Pose

READY, DONE = 1, 2
# The script answers these at once and accepts the next; all others wait until the command register is cleared.
REALTIME = {6, 9, 10, 11, 24, 25, 26, 27, 38, 58, 66, 67, 68, 69, 70, 71}
SERVO_J, STOP_SCRIPT = 11, 255


class ScriptError(Exception):
    """URScript would stop the program with a runtime error."""


class ControlScript:
    """The register machine of ur_rtde 1.6.5's control script.

    ``thread`` is what its background threads do: servoJ and speedJ continue until stopped, moves run asynchronously.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._registers = controller.inputs.registers
        self._executing = False
        self._waiting: Callable[[], bool] | None = None
        self._thread: str | None = None
        self._operation, self._writes = 0, 0
        self._commands: dict[int, Callable[[], None]] = {
            1: self._move_j,
            8: lambda: None,  # zero_ftsensor: there is no sensor
            9: self._speed_j,
            SERVO_J: self._servo_j,
            15: self._speed_stop,
            16: self._servo_stop,
            17: self._set_payload,
            26: self._step_time,
            27: self._positions_history,
            29: self._set_tcp,
            31: lambda: controller.protective_stop("protective_stop() called by the program"),
            33: lambda: self._stop_move("stopl", self._joint_deceleration(self._number(0))),
            34: lambda: self._stop_move("stopj", self._number(0)),
            35: self._set_watchdog,
            37: self._joints_within_limits,
            38: lambda: self._answer(controller.arm.torques()),
            40: lambda: self._answer_pose(controller.tcp_offset),
            43: lambda: self._answer_pose(controller.tool()),
            44: self._forward_kinematics,
            47: lambda: self._answer_int(int(controller.is_steady())),
            54: lambda: self._answer_int(0),
            58: lambda: self._answer_pose(controller.arm.flange()),
            59: lambda: None,  # set_gravity: the arm stands upright
        }

    def begin(self) -> None:
        """Do what the script does before its loop."""
        self._progress(-1)
        self._registers.out_int[0] = READY

    def tick(self) -> None:
        """Run the script's loop once."""
        self._end_asynchronous_move()
        if self._waiting is not None:
            if not self._waiting():
                return
            self._waiting = None
            self._registers.out_int[0] = DONE
            return
        command = self._registers.in_int[0]
        if self._controller.refusing == "busy":
            self._registers.out_int[0] = 0
            return
        if self._controller.refusing == "stop" and command == SERVO_J:
            self._controller.end_program("servoj was refused, as a fault asked for")
            return
        try:
            self._take(command)
        except ScriptError as error:
            self._controller.end_program(str(error))

    def _take(self, command: int) -> None:
        if command == STOP_SCRIPT:
            self._controller.end_program("stopped by ur_rtde")
        elif command in REALTIME:
            self._process(command)
            self._registers.out_int[0] = READY
        elif command == 0:
            self._executing = False
            self._registers.out_int[0] = READY
        elif not self._executing:
            self._executing = True
            self._process(command)
            if self._waiting is None:
                self._registers.out_int[0] = DONE

    def _process(self, command: int) -> None:
        action = self._commands.get(command)
        if action is None:
            raise ScriptError(f"command {command} of ur_rtde's control script is not modelled by the stand-in")
        action()

    # Registers

    def _vector(self, start: int, length: int = JOINTS) -> Array:
        values = np.array(self._registers.in_double[start : start + length])
        if not np.isfinite(values).all():
            raise ScriptError(f"runtime error: {values.tolist()} is not finite")
        return values

    def _number(self, index: int) -> float:
        return float(self._vector(index, 1)[0])

    def _answer(self, values: Sequence[float] | Array) -> None:
        self._registers.out_double[: len(values)] = [float(value) for value in values]

    def _answer_int(self, value: int) -> None:
        self._registers.out_int[1] = value

    def _answer_pose(self, pose: Pose) -> None:
        self._answer(six(pose))

    def _pose(self, start: int) -> Pose:
        vector = self._vector(start)
        return Pose(vector[:3], rotation_matrix(vector[3:]))

    # Motion

    def _claim(self, thread: str) -> None:
        """Claim the arm; URScript ends a program if two threads want it."""
        if self._thread not in (None, thread):
            raise ScriptError(f"runtime error: {thread}, but another thread is already controlling the robot")
        self._thread = thread

    def _wait_for(self, motion: Motion) -> None:
        def is_over() -> bool:
            """Whether the motion is done, or another took its place."""
            return motion.done or self._controller.motion is not motion

        self._waiting = is_over

    def _servo_j(self) -> None:
        self._claim("servoj")
        time_s, lookahead_s, gain = self._number(8), self._number(9), self._number(10)
        self._controller.servo(self._vector(0), time_s, lookahead_s, gain)

    def _speed_j(self) -> None:
        self._claim("speedj")
        self._controller.drive(Speed(self._vector(0), self._number(6)))

    def _move_j(self) -> None:
        asynchronous = self._registers.in_int[1] == 1
        self._take_over("movej")
        start = self._controller.reference.q
        motion = Move(start, self._vector(0), self._number(6), self._number(7))
        self._controller.drive(motion)
        if asynchronous:
            self._thread = "async move"
            self._progress(0)
        else:
            self._wait_for(motion)

    def _end_asynchronous_move(self) -> None:
        if self._thread == "async move" and self._controller.motion.done:
            self._thread = None
            self._progress(-1)

    def _stop(self, deceleration: float) -> None:
        brake = Brake(deceleration)
        self._controller.drive(brake)
        self._wait_for(brake)

    def _speed_stop(self) -> None:
        if self._thread == "speedj":
            self._thread = None
        self._stop(self._number(0))

    def _servo_stop(self) -> None:
        if self._thread == "servoj":
            self._thread = None
        self._stop(self._joint_deceleration(self._number(0)))

    def _stop_move(self, name: str, deceleration: float) -> None:
        """Stop whatever moves, an asynchronous move included."""
        self._take_over(name)
        self._stop(deceleration)

    def _take_over(self, name: str) -> None:
        """End an asynchronous move, and claim the arm for one command."""
        if self._thread == "async move":
            self._thread = None
            self._progress(-1)
        self._claim(name)
        self._thread = None

    def _joint_deceleration(self, tool: float) -> float:
        """Convert the tool's deceleration [m/s^2] to the fastest joint's [rad/s^2], to stop along the same path."""
        speed = float(np.linalg.norm(self._controller.arm.tcp_velocity()[:3]))
        fastest = float(np.abs(self._controller.reference.v).max())
        return min(tool * fastest / max(speed, 1e-3), 40.0) if fastest > 0 else 40.0

    # The rest

    def _set_watchdog(self) -> None:
        frequency = self._number(0)
        if frequency <= 0:
            raise ScriptError(f"runtime error: rtde_set_watchdog with a frequency of {frequency} Hz")
        self._controller.inputs.watchdog = Watchdog("input_int_register_0", 1.0 / frequency, self._controller.time_s)

    def _set_payload(self) -> None:
        self._controller.payload = self._number(0)
        cog = self._vector(1, 3)
        if cog.any():
            self._controller.payload_cog = cog.tolist()

    def _set_tcp(self) -> None:
        self._controller.tcp_offset = self._pose(0)

    def _step_time(self) -> None:
        self._registers.out_double[0] = PERIOD_S

    def _positions_history(self) -> None:
        steps = min(max(self._registers.in_int[1], 0), len(self._controller.history) - 1)
        self._answer(self._controller.history[-1 - steps])

    def _joints_within_limits(self) -> None:
        q, model = self._vector(0), self._controller.arm.spec.arm
        self._answer_int(int(bool(((q >= model.lower) & (q <= model.upper)).all())))

    def _forward_kinematics(self) -> None:
        self._answer_pose(compose(self._controller.arm.flange_at(self._vector(0)), self._pose(6)))

    def _progress(self, value: int) -> None:
        """Write the script's progress register: a counter of writes, one of operations, running, and the progress."""
        self._writes = (self._writes + 1) % 128
        if value == 0:
            self._operation = (self._operation + 1) % 128
        word = self._writes * 65536 + self._operation * 16777216
        self._registers.out_int[2] = word + (min(value, 32767) + 32768 if value >= 0 else 0)
