"""Moves an arm through poses for a camera's calibration, or reads where a person put it, and records both."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from td3robot.build import robot_spec
from td3robot.config import RobotEnvironmentConfig
from td3robot.deploy.ledger import Ledger, serial_of
from td3robot.deploy.loaded_policy import scaled
from td3robot.deploy.operator import Operator
from td3robot.deploy.station import Station
from td3robot.errors import CameraError, ConfigError, RobotError
from td3robot.geometry import angle_of, rotation_matrix
from td3robot.robots.cells import CellConfig
from td3robot.robots.guard import Guard, GuardDecision
from td3robot.robots.interface import Robot
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.travel import SLOW_RAD_S, TravelPlan
from td3robot.state import Array, RobotState
from td3robot.vision.hand_eye import LEAST_POSES
from td3robot.vision.recording import FILE, Mode, Recording, save_image, save_recording
from td3robot.vision.tags import BOARD_FIRST, TABLE_FIRST, Image
from td3robot.vision.target import Target, find_tags
from td3robot.vision.touched import LEAST_TAGS

# How far proposed poses tilt, in turn [rad], and from one to the next about the tool's axis: the golden angle [rad].
TILTS_RAD, GOLDEN_RAD, TWIST_RAD = (0.45, 0.3), 2.4, 0.25
# How far a carried target moves along each axis [m]; at which shares of its distance a camera on the wrist looks.
SHIFT_M, DISTANCES = 0.1, (1.0, 0.85, 1.15)
# Where the guard does not admit a pose, it is tried nearer to the first one, at these shares.
NEARER = (1.0, 0.7, 0.5)
# No joint turns further than this from the first pose [rad]: the same posture, tilted.
LARGEST_TURN_RAD = 1.3
# What a wrist camera looks at is taken to be this far at least, and at most [m].
NEAREST_M, FURTHEST_M = 0.15, 0.6
# How long the check before a motion watches the states, and an arm may take to rest [s].
CHECK_S, REST_S = 1.0, 5.0
# Touched tags may be this far from the table of the cell's file [m].
TABLE_M = 0.005


@dataclass(frozen=True, slots=True)
class HandEyeRequest:
    """A calibration to record.

    Attributes:
        cell: Where the robot is.
        mode: ``touch``, ``carry`` or ``wrist``.
        folder: Where pictures and poses go; it must not hold a recording yet.
        records: Directory of records, whose own ledger is read as well.
        speed: Factor on every speed and acceleration limit.
        poses: How many are proposed.
        tip_m: From the tool centre point to what touches the tags [m].
    """

    cell: CellConfig
    mode: Mode
    folder: Path
    records: Path = Path("records")
    speed: float = 0.1
    poses: int = 12
    tip_m: float = 0.0


def record(request: HandEyeRequest, look: Callable[[], Image], target: Target, operator: Operator) -> Recording:
    """Record a calibration: the operator agrees to each motion, or brings the tool to each tag.

    Args:
        request: What to record.
        look: Takes a picture now, while the arm rests.
        target: What ``carry`` and ``wrist`` look at.
        operator: Agrees to motions, and stops the arm.

    Raises:
        CameraError: The target or the tags are not in view.
        ConfigError: Nobody is there who can be asked, or the folder holds a recording.
        LadderError: Another program drives the robot, or a fault is pending.
        OperatorStop: The operator stopped it.
        RobotError: The robot is no-go, cannot be reached, or failed.
    """
    if not operator.present:
        raise ConfigError(
            "calibrate hand-eye asks before every motion, and standard input is no terminal; start it from one, or "
            "give --recorded FOLDER"
        )
    if (request.folder / FILE).exists():
        raise ConfigError(f"{request.folder} holds a recording already; solve it with --recorded, or choose another")
    request.folder.mkdir(parents=True, exist_ok=True)
    request.cell.require_driver()
    if request.mode == "touch":
        return _touch(request, look(), operator)
    if target.find(look()) is None:
        raise CameraError(f"{target.title} is not in view; bring it into the middle of the picture, and start again")
    return _drive(request, look, target, operator)


def proposed(guard: Guard, q: Array, mode: Mode, count: int) -> list[Array]:
    """Return postures (n,) [rad] around a first one that tilt the tool to every side, as the guard admits them.

    Raises:
        RobotError: It admits too few.
    """
    found = [q]
    for number in range(2 * count):
        if len(found) < count and (posture := _tilted(guard, q, mode, number)) is not None:
            found.append(posture)
    if len(found) <= LEAST_POSES:
        raise RobotError(
            f"the guard admits {len(found)} poses around this one, and at least {LEAST_POSES + 1} are needed; move the "
            "arm by hand, in freedrive, away from the table and the walls of its workspace"
        )
    return found


def _tilted(guard: Guard, q: Array, mode: Mode, number: int) -> Array | None:
    kinematics, side = guard.kinematics, GOLDEN_RAD * number
    tool, tilt = kinematics.tcp(q), TILTS_RAD[number % len(TILTS_RAD)]
    axis = tool.rotation[:, 2]
    above = float(tool.position[2]) - kinematics.spec.table_height_m
    distance = float(np.clip(above / max(-axis[2], 0.3), NEAREST_M, FURTHEST_M))
    for share in NEARER:
        turn = share * np.array([tilt * cos(side), tilt * sin(side), TWIST_RAD * (-1) ** number])
        rotation = tool.rotation @ rotation_matrix(turn)
        if mode == "wrist":  # around what it looks at
            factor = 1.0 + share * (DISTANCES[number % len(DISTANCES)] - 1.0)
            position = tool.position + distance * (axis - factor * rotation[:, 2])
        else:
            corner = np.array([cos(side + pi / 2), sin(side + pi / 2), (-1.0) ** (number // 2)])
            position = tool.position + share * SHIFT_M * corner
        posture = kinematics.inverse(position, q, rotation)
        if posture is not None and np.abs(posture - q).max() < LARGEST_TURN_RAD and guard.admits(posture) is None:
            return posture
    return None


def _drive(request: HandEyeRequest, look: Callable[[], Image], target: Target, operator: Operator) -> Recording:
    cell = request.cell
    config = scaled(RobotEnvironmentConfig(robot=cell.robot), request.speed)
    with Station(config, cell) as station:
        operator.say(f"connecting to {cell.host}, and checking it; its states are watched for {CHECK_S:g} s")
        check = station.check(None, CHECK_S)
        if check.objection is not None:
            raise RobotError(f"no-go: {check.objection}")
        ledger, serial = Ledger(request.records, recovery=cell.recovery), serial_of(check.facts)
        ledger.require_calibration(serial, check.facts.get("calibration"))
        ledger.require_released(serial)
        robot, travel, guard = station.robot, station.environment.travel, station.environment.guard
        postures = proposed(guard, robot.read().q, request.mode, request.poses)
        operator.agree(_in_words(guard.kinematics, postures, request.speed))
        with ledger.driving(serial, request.folder), _latched(ledger, serial, robot):
            robot.take_control()
            station.environment.connect()
            recording = Recording(mode=request.mode, tcp_offset_m=robot.spec.tcp_offset_m)
            for number, posture in enumerate(postures, start=1):
                travel.agree = _asking(operator, f"pose {number} of {len(postures)}")
                travel.watch = _watching(operator)
                q = travel.to(posture, opens=False)
                recording = _take(request.folder, recording, look, target, number, guard.kinematics, q, operator)
            travel.agree = _asking(operator, "back to the first pose")
            travel.to(postures[0], opens=False)
    return recording


def _take(
    folder: Path, recording: Recording, look: Callable[[], Image], target: Target, number: int,
    kinematics: Kinematics, q: Array, operator: Operator,
) -> Recording:  # fmt: skip
    """Take a picture at a posture and return the recording with it, or say that the target is not in view."""
    image = look()
    if target.find(image) is None:
        operator.say(f"pose {number}: {target.title} is not in view; this pose is not used")
        return recording
    name = f"pose_{number:02d}.png"
    save_image(folder, name, image)
    recording = recording.with_pose(name, kinematics.tcp(q))
    save_recording(folder, recording)
    operator.say(f"pose {number}: recorded")
    return recording


def _touch(request: HandEyeRequest, image: Image, operator: Operator) -> Recording:
    """Read where the tool touches each tag of the table that the camera sees; nothing is sent."""
    tags = sorted(tag for tag in find_tags(image) if TABLE_FIRST <= tag < BOARD_FIRST)
    if len(tags) < LEAST_TAGS:
        raise CameraError(
            f"the camera sees {len(tags)} of the table's tags, and at least {LEAST_TAGS} are needed; lay out more, and "
            "move the arm out of their way"
        )
    save_image(request.folder, "view.png", image)
    spec = robot_spec(request.cell.robot)
    robot = request.cell.driver(spec, passive=True)
    try:
        robot.connect()
        kinematics = Kinematics(robot.spec)
        recording = Recording(mode="touch", tcp_offset_m=spec.tcp_offset_m, tip_m=request.tip_m)
        for tag in tags:
            if not operator.accepts(
                f"bring the tool to the centre of tag {tag} by hand, in freedrive; read its place?"
            ):
                continue
            recording = recording.with_pose("view.png", kinematics.tcp(_at_rest(robot).q), tag)
            save_recording(request.folder, recording)
    finally:
        robot.close()
    _require_on_table(recording, spec.table_height_m)
    return recording


def _require_on_table(recording: Recording, table_m: float) -> None:
    """Refuse tags that were touched at another height than the table's: what touched is longer than was said."""
    heights = [float((pose.tool.position + recording.tip_m * pose.tool.rotation[:, 2])[2]) for pose in recording.poses]
    if heights and abs(off := float(np.median(heights)) - table_m) > TABLE_M:
        raise CameraError(
            f"the tags were touched {1e3 * off:+.1f} mm from the table's height in the cell's file (limit "
            f"{1e3 * TABLE_M:g}); give --tip, the length from the tool centre point to what touches, or correct "
            "robot.table_height_m"
        )


def _at_rest(robot: Robot) -> RobotState:
    """Return the robot's state once its arm rests.

    Raises:
        RobotError: It does not.
    """
    end = monotonic() + REST_S
    while np.abs((state := robot.read()).dq).max() > SLOW_RAD_S:
        if monotonic() > end:
            raise RobotError(f"the arm still moves after {REST_S:g} s; let go of it, and read the tag's place then")
        sleep(robot.spec.period_s)
    return state


@contextmanager
def _latched(ledger: Ledger, serial: str, robot: Robot) -> Iterator[None]:
    """Latch a fault of the robot that ends what is inside."""
    try:
        yield
    except RobotError as error:
        robot.stop()
        if robot.fault is not None:
            ledger.latch(serial, robot.fault)
            raise RobotError(robot.fault) from error
        raise


def _asking(operator: Operator, which: str) -> Callable[[TravelPlan], None]:
    def _agree(plan: TravelPlan) -> None:
        operator.agree(f"{which}: the arm will move for about {plan.seconds:.0f} s")

    return _agree


def _watching(operator: Operator) -> Callable[[RobotState, GuardDecision], None]:
    def _watch(state: RobotState, decision: GuardDecision) -> None:
        operator.raise_if_stopped()

    return _watch


def _in_words(kinematics: Kinematics, postures: Sequence[Array], speed: float) -> str:
    """Say how far the arm will move through some postures."""
    first, *others = (kinematics.tcp(q) for q in postures)
    away = max(float(np.linalg.norm(tool.position - first.position)) for tool in others)
    turn = max(angle_of(first.rotation.T @ tool.rotation) for tool in others)
    return (
        f"the arm will go through {len(postures)} poses around this one at speed {speed:g}, up to {1e2 * away:.0f} cm "
        f"and {np.degrees(turn):.0f} degrees away; you are asked before each, and the fingers stay as they are"
    )
