"""Draw how cells of the simulated controller answer, beside the training simulation: a joint, the gripper, the camera.

Usage: python benchmarks/responses.py [--seeds 4] [--draws 60] [--out docs/images]

The stand-in is ticked without sockets and without a clock: targets pass its network, the control script's registers,
servoJ and the arm. The training simulation gets the same commands, as it is and behind what the disturbance `real`
draws for an episode; arm and gripper are stepped at 100 Hz, to be seen between two control periods. Three pictures are
written, and a table in Markdown is printed.
"""

import argparse
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from td3robot.config import DISTURBANCES, RobotConfig
from td3robot.config.objects import ObjectConfig
from td3robot.geometry import about_vertical, rotation_of, yaw
from td3robot.robots.cells.ur import UrConfig
from td3robot.robots.interface import Robot, robot_spec
from td3robot.robots.objects import Objects
from td3robot.robots.simulated.disturbed import Camera, DisturbedRobot
from td3robot.robots.simulated.mujoco import MujocoRobot
from td3robot.simulators.arm import PERIOD_S, SimulatedArm, own_parameters
from td3robot.simulators.control_script import SERVO_J, ControlScript
from td3robot.simulators.controller import Controller
from td3robot.simulators.loop import Line
from td3robot.simulators.presets import NAMED, NOMINAL, Preset, drawn
from td3robot.simulators.settings import ControllerConfig
from td3robot.simulators.vision import VisionSystem
from td3robot.state import Array, JointCommand, Pose

# The shoulder lift: it carries the arm, and is among the softest of every cell.
JOINT = 1
# Two steps and a ramp [rad], [rad/s], each held or kept up for HOLD_S, after SETTLE_S at rest.
STEP_RAD, SMALL_RAD, RAMP_RAD_S = 0.1, 0.001, 0.3
HOLD_S, SETTLE_S = 1.5, 1.0
CLOSING_S, WATCHED_S = 2.5, 5.0
# How often a policy acts, and how often the simulation is looked at.
POLICY_HZ, FINE_HZ = 20.0, 100.0
# The object moves along x and turns at these speeds; its turn says when a pose was measured.
OBJECT_M_S, OBJECT_RAD_S = 0.1, 0.5
# Where all responses are compared [s].
GRID = np.arange(0.0, HOLD_S, PERIOD_S)
OBJECT = "object"
# Where the object is at first: far from the hand, which would hide it (x, y, z) [m].
BEGIN_M = (-0.2, 0.5, 0.02)

Times = Array
Values = Array
Reading = tuple[Times, Values]
Command = Callable[[float], float]
COMMANDS: Mapping[str, Command] = {
    "step": lambda t: STEP_RAD,
    "small": lambda t: SMALL_RAD,
    "ramp": lambda t: RAMP_RAD_S * t,
}


@dataclass
class Responses:
    """How one cell answered: (n,) times [s] and (n,) values of each experiment.

    Attributes:
        joint: By command, the joint's way since it rested [rad].
        closing: The closed fraction after a command to close.
        seen: Where the object is believed to be along x, since the beginning [m].
        age: How old that is [s].
        slowest: The lowest speed scaling that the controller reported.
    """

    joint: dict[str, Reading] = field(default_factory=dict)
    closing: Reading = (np.zeros(0), np.zeros(0))
    seen: Reading = (np.zeros(0), np.zeros(0))
    age: Reading = (np.zeros(0), np.zeros(0))
    slowest: float = 1.0


class Cell:
    """A stand-in of one preset, ticked as its process would, with targets as its driver would stream them."""

    def __init__(self, preset: Preset) -> None:
        config = ControllerConfig(gripper_active=True, **preset.settings())
        spec, cell_model = config.spec(), config.cell_model
        self.home = spec.arm.home
        self.arm = SimulatedArm(
            spec, (), own_parameters(spec.arm, config.calibration), cell_model.tool, cell_model.friction
        )
        self.controller = Controller(self.arm, config)
        self.line = Line(lambda: self.controller.time_s, config.seed, cell_model.network)
        stream_hz = preset.stream_hz or UrConfig(host="none").rtde_rate_hz
        self._stream_ticks = round(1.0 / (PERIOD_S * stream_hz))
        self.controller.start_program(ControlScript(self.controller))
        self.slowest = 1.0

    def run(self, seconds: float, angle: Callable[[float], float]) -> Reading:
        """Stream ``angle(t)`` [rad] from home for the joint; return the joint's own, a value a tick."""
        times, values = [], []
        for tick in range(round(seconds / PERIOD_S)):
            if tick % self._stream_ticks == 0:
                self._stream(self.home + _only_joint(angle(tick * PERIOD_S)))
            self.line.tick()
            self.controller.tick()
            self.slowest = min(self.slowest, self.controller.limiter.scale)
            times.append((tick + 1) * PERIOD_S)
            values.append(float(self.arm.q[JOINT]))
        if self.controller.program is None:
            raise RuntimeError(f"the stand-in ended its program: {self.controller.entries[-1][1]}")
        return np.array(times), np.array(values)

    def close(self, seconds: float) -> Reading:
        """Write one position to close; return the closed fraction, a value a tick."""
        counts = self.arm.spec.gripper.counts
        assert counts is not None
        self.controller.gripper.write({"POS": counts.closed, "SPE": 255, "FOR": 255, "GTO": 1})
        times, values = [], []
        for tick in range(round(seconds / PERIOD_S)):
            self.controller.tick()
            times.append((tick + 1) * PERIOD_S)
            values.append(self.arm.closed)
        return np.array(times), np.array(values)

    def _stream(self, q: Array) -> None:
        law, values = self.arm.spec.law, [float(value) for value in q]
        package: dict[str, float] = {f"input_double_register_{index}": value for index, value in enumerate(values)}
        package["input_double_register_8"] = self._stream_ticks * PERIOD_S
        package["input_double_register_9"], package["input_double_register_10"] = law.lookahead_s, law.gain
        package["input_int_register_0"] = SERVO_J
        self.line.receive(lambda: self.controller.inputs.write(package))


class Scene:
    """What a vision system looks at: an object that moves, and a hand far from it."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def object_poses(self) -> dict[str, Pose]:
        """Return where the object is."""
        return {OBJECT: object_pose(self.time_s)}

    def tcp(self) -> Pose:
        """Return where the tool is."""
        return Pose(np.array([0.0, 0.5, 0.5]), np.eye(3))


def object_pose(time_s: float) -> Pose:
    """Return where the object is at a time."""
    position = np.array(BEGIN_M) + np.array([OBJECT_M_S * time_s, 0.0, 0.0])
    return Pose(position, about_vertical(OBJECT_RAD_S * time_s))


def _only_joint(angle: float) -> Array:
    q = np.zeros(6)
    q[JOINT] = angle
    return q


def of_standin(preset: Preset) -> Responses:
    """Measure one cell of the stand-in."""
    found = Responses()
    for name, command in COMMANDS.items():
        cell = Cell(preset)
        rest = cell.run(SETTLE_S, lambda t: 0.0)[1][-1]
        times, q = cell.run(HOLD_S, lambda t, command=command: _streamed(command, t))  # type: ignore[misc]
        found.joint[name] = times, q - rest
        found.slowest = min(found.slowest, cell.slowest)
    cell = Cell(preset)
    found.closing = cell.close(CLOSING_S)
    found.seen, found.age = _watched(preset)
    return found


def _streamed(command: Command, t: float) -> float:
    """Return what the driver streams: in a straight line from each command to the next, over a control period."""
    period_s = 1.0 / POLICY_HZ
    begin = period_s * int(t / period_s + 1e-9)
    before = command(begin) if begin > 0.0 else 0.0
    return before + (command(begin + period_s) - before) * (t - begin) / period_s


def _watched(preset: Preset) -> tuple[Reading, Reading]:
    """Run the cell's vision system; return what is known of the object."""
    scene, newest, rows = Scene(), object_pose(0.0), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        camera = VisionSystem(scene, address, preset.cell_model.camera)  # type: ignore[arg-type]
        for tick in range(round(WATCHED_S / PERIOD_S)):
            scene.time_s = tick * PERIOD_S
            camera.tick()
            while (message := _received(listener)) is not None:
                rotation = rotation_of(message["quaternion_wxyz"])
                newest = Pose(np.array(message["position_m"]), rotation)
            if scene.time_s >= SETTLE_S - 1e-9:
                age = scene.time_s - yaw(newest.rotation) / OBJECT_RAD_S
                rows.append((scene.time_s, newest.position[0] - BEGIN_M[0], age))
    return _seen_and_age(rows)


def _seen_and_age(rows: list[tuple[float, float, float]]) -> tuple[Reading, Reading]:
    return _reading([row[:2] for row in rows]), _reading([(row[0], row[2]) for row in rows])


def _received(listener: socket.socket) -> dict[str, list[float]] | None:
    try:
        message: dict[str, list[float]] = json.loads(listener.recv(1 << 12))
    except BlockingIOError:
        return None
    return message


def of_simulation(level: str, seed: int) -> Responses:
    """Measure the training simulation, as it is (``off``) or as an episode of a disturbance draws it."""
    found = Responses()
    robot, _, _ = _simulation(level, FINE_HZ)
    for name, command in COMMANDS.items():
        _begin(robot, seed)
        rest = _simulated(robot, SETTLE_S, lambda t: 0.0)[1][-1]
        times, q = _simulated(robot, HOLD_S, command)
        found.joint[name] = times, q - rest
    _begin(robot, seed)
    began, closed = robot.now(), []
    while robot.now() - began < CLOSING_S:
        robot.send(JointCommand(robot.spec.arm.home, 1.0))
        robot.advance()
        closed.append((robot.now() - began, robot.spec.gripper.closed_fraction(robot.truth().driver_q)))
    found.closing = _reading(closed)
    robot.close()
    found.seen, found.age = _seen_and_age(_seen(level, seed))
    return found


def _simulation(level: str, rate_hz: float) -> tuple[Robot, Objects, Objects]:
    """Make a simulated robot, what sees the object, and what places it."""
    config = RobotConfig(control_rate_hz=rate_hz)
    simulated = MujocoRobot(robot_spec(config), config.physics_rate_hz, (ObjectConfig().model(OBJECT),))
    simulated.connect()
    lying = simulated.objects()
    if level == "off":
        return simulated, lying, lying
    disturbed = DisturbedRobot(simulated, DISTURBANCES[level])
    return disturbed, Camera(lying, disturbed), lying


def _begin(robot: Robot, seed: int) -> None:
    """Begin the episode of a seed."""
    robot.begin(np.random.default_rng(seed))
    robot.move_to(robot.spec.arm.home)


def _seen(level: str, seed: int) -> list[tuple[float, float, float]]:
    """Return what a policy knows of the object at its ticks: time, way along x, and age [s], [m], [s]."""
    robot, objects, lying = _simulation(level, POLICY_HZ)
    _begin(robot, seed)
    objects.arrange({OBJECT: object_pose(0.0)})
    began, rows = robot.now(), []
    while (now := robot.now() - began) < WATCHED_S:
        lying.arrange({OBJECT: object_pose(now)})
        sighting = objects.read()[OBJECT]
        if now >= SETTLE_S - 1e-9:
            rows.append((now, float(sighting.pose.position[0]) - BEGIN_M[0], sighting.age_s))
        robot.send(JointCommand(robot.spec.arm.home, 0.0))
        robot.advance()
    robot.close()
    return rows


def _simulated(robot: Robot, seconds: float, command: Command) -> Reading:
    """Send what a driver would stream; return the joint's true angle after each period."""
    began, rows = robot.now(), []
    while (now := robot.now() - began) < seconds:
        robot.send(JointCommand(robot.spec.arm.home + _only_joint(_streamed(command, now + robot.spec.period_s)), 0.0))
        robot.advance()
        rows.append((robot.now() - began, float(robot.truth().q[JOINT])))
    return _reading(rows)


def _reading(rows: Sequence[tuple[float, ...]]) -> Reading:
    times, values = np.array(rows).T
    return times, values


# Figures


def reached(reading: Reading, level: float) -> float:
    """Return when a value first gets to a level [s]; nan where it never does."""
    times, values = np.concatenate([[0.0], reading[0]]), np.concatenate([[0.0], reading[1]])
    after = int(np.argmax(values >= level))
    if values[after] < level:
        return float("nan")
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


FIGURES: Mapping[str, tuple[int, Callable[[Responses], float]]] = {
    "ramp: behind by ms": (0, lambda r: 1e3 * (r.joint["ramp"][0][-1] - r.joint["ramp"][1][-1] / RAMP_RAD_S)),
    "step of 100 mrad: 63 % after ms": (0, lambda r: 1e3 * reached(r.joint["step"], 0.632 * STEP_RAD)),
    "overshoot %": (1, lambda r: max(0.0, 100 * (r.joint["step"][1].max() / STEP_RAD - 1.0))),
    "lowest speed scaling %": (0, lambda r: 100 * r.slowest),
    "step of 1 mrad: short by mrad": (2, lambda r: 1e3 * (SMALL_RAD - r.joint["small"][1][-1])),
    "closing: moves after ms": (0, lambda r: 1e3 * reached(r.closing, 0.02)),
    "95 % closed after ms": (0, lambda r: 1e3 * reached(r.closing, 0.95)),
    "pose age ms, median": (0, lambda r: 1e3 * float(np.median(r.age[1]))),
    "oldest ms": (0, lambda r: 1e3 * float(r.age[1].max())),
}


def table(plain: Responses, real: list[Responses], cells: Mapping[str, Responses]) -> str:
    """Return the figures in Markdown; of the draws, the 5th to the 95th percentile."""
    rows = {"training, `off`": [_text(digits, figure(plain)) for digits, figure in FIGURES.values()]}
    spans = [(digits, np.nanpercentile([figure(one) for one in real], [5, 95])) for digits, figure in FIGURES.values()]
    rows["training, `real`"] = [
        " to ".join(dict.fromkeys(_text(digits, end) for end in ends)) for digits, ends in spans
    ]
    for name, found in cells.items():
        title = f"drawn, seed {name}" if name.isdecimal() else name
        rows[title] = [_text(digits, figure(found)) for digits, figure in FIGURES.values()]
    lines = ["| | " + " | ".join(FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    return "\n".join(lines + [f"| {name} | " + " | ".join(values) + " |" for name, values in rows.items()])


def _text(digits: int, value: float) -> str:
    """Write a figure, a zero without a sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


# Pictures


@dataclass
class Pictured:
    """What the pictures show: responses of the training simulation, and of cells by their names."""

    plain: Responses
    real: list[Responses]
    cells: dict[str, Responses]
    presets: dict[str, Preset]

    def lines(self, axes: Axes, sections: tuple[str, ...], pick: Callable[[Responses], Reading], scale: float) -> None:
        """Draw the cells that differ in one of some sections of their models; drawn ones are thin."""
        drawn_before = False
        for index, (name, found) in enumerate(self.cells.items()):
            if not self.differs(name, sections):
                continue
            times, values = pick(found)
            if name.isdecimal():
                label = None if drawn_before else "drawn cells"
                axes.plot(times, scale * values, color="0.35", lw=0.7, label=label)
                drawn_before = True
            else:
                axes.plot(times, scale * values, color=f"C{index}", lw=1.6, label=name)

    def differs(self, name: str, sections: tuple[str, ...]) -> bool:
        """Whether a cell is the nominal one, or another in what a panel is about."""
        mine, theirs = self.presets[name].cell_model, NOMINAL.cell_model
        return name == NOMINAL.name or any(getattr(mine, section) != getattr(theirs, section) for section in sections)

    def simulation(self, axes: Axes, pick: Callable[[Responses], Reading], scale: float) -> None:
        """Draw the training simulation: a line, and the band of what is drawn for it."""
        ways = np.array([np.interp(GRID, np.r_[0.0, t], np.r_[0.0, v]) for t, v in map(pick, self.real)])
        low, high = np.percentile(ways, [5, 95], axis=0)
        axes.fill_between(GRID, scale * low, scale * high, color="0.87", label="training, real: 5 to 95 %")
        times, values = pick(self.plain)
        axes.plot(np.r_[0.0, times], scale * np.r_[0.0, values], "k--", lw=1.6, label="training, off")


def joint_picture(shown: Pictured) -> Figure:
    """Draw the joint's two steps and its ramp."""
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    titles = {
        "step": "shoulder lift, step of 100 mrad [mrad]",
        "small": "step of 1 mrad [mrad]",
        "ramp": "behind a ramp of 0.3 rad/s [mrad]",
    }
    for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):

        def pick(found: Responses, name: str = name) -> Reading:
            """Return what the panel shows of a cell."""
            times, values = found.joint[name]
            return (times, RAMP_RAD_S * times - values) if name == "ramp" else (times, values)

        shown.simulation(axes, pick, 1e3)
        shown.lines(axes, ("servo", "limits", "friction", "network"), pick, 1e3)
        axes.set(title=title, xlabel="seconds", xlim=(0.0, 1.0))
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8, loc="lower right")
    return figure


def gripper_picture(shown: Pictured) -> Figure:
    """Draw one closing."""
    figure = Figure(figsize=(7, 3.9), layout="constrained")
    axes = figure.subplots()
    shown.simulation(axes, lambda found: found.closing, 1.0)
    shown.lines(axes, ("gripper",), lambda found: found.closing, 1.0)
    axes.set(title="closed fraction after one command to close", xlabel="seconds", xlim=(0.0, GRID[-1]))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return figure


def camera_picture(shown: Pictured) -> Figure:
    """Draw what is known of an object that moves, and how old that is."""
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, (name, found) in enumerate(shown.cells.items()):
        if shown.differs(name, ("camera",)) and not name.isdecimal():
            left.step(*_shifted(found.seen), where="post", color=f"C{index}", lw=1.6, label=name)
    drawn_names = [name for name in shown.cells if name.isdecimal()]
    for name in drawn_names:
        label = "drawn cells" if name == drawn_names[0] else None
        left.step(*_shifted(shown.cells[name].seen), where="post", color="0.35", lw=0.7, label=label)
    for found in shown.real[:12]:
        label = "training, real: 12 draws" if found is shown.real[0] else None
        left.step(*_shifted(found.seen), where="post", color="0.8", lw=0.7, zorder=0, label=label)
    left.step(*_shifted(shown.plain.seen), where="post", color="k", ls="--", lw=1.6, label="training, off")
    left.set(title="where an object at 100 mm/s is believed to be [mm]", xlabel="seconds", xlim=(0, 1), ylim=(60, 200))
    left.grid(alpha=0.3)
    left.legend(fontsize=8)
    ages = {"training, off": shown.plain.age[1], "training, real": np.concatenate([one.age[1] for one in shown.real])}
    ages |= {name: one.age[1] for name, one in shown.cells.items() if shown.differs(name, ("camera",))}
    for row, values in enumerate(ages.values()):
        low, middle, high = np.percentile(1e3 * values, [5, 50, 95])
        right.plot([low, high], [row, row], color="0.6", lw=6, solid_capstyle="butt")
        right.plot(middle, row, "k|", ms=12, mew=2)
    labels = [f"drawn {name}" if name.isdecimal() else name for name in ages]
    right.set(title="age of the pose that a policy acts on [ms]: 5 to 95 %, median", yticks=range(len(ages)))
    right.set_yticklabels(labels)
    right.invert_yaxis()
    right.grid(alpha=0.3, axis="x")
    return figure


def _shifted(reading: Reading) -> Reading:
    """Return a reading with its time from SETTLE_S on, in millimetres."""
    return reading[0] - SETTLE_S, 1e3 * reading[1]


def main() -> None:
    """Measure, draw, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="so many drawn cells, from seed 0 on")
    parser.add_argument("--draws", type=int, default=60, help="so many episodes of the training simulation under real")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    arguments = parser.parse_args()
    presets = NAMED | {str(seed): drawn(seed) for seed in range(arguments.seeds)}
    cells = {name: of_standin(one) for name, one in presets.items()}
    real = [of_simulation("real", seed) for seed in range(arguments.draws)]
    shown = Pictured(of_simulation("off", 0), real, cells, presets)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, picture in (("joint", joint_picture), ("gripper", gripper_picture), ("camera", camera_picture)):
        picture(shown).savefig(arguments.out / f"responses_{name}.png", dpi=80)
    print(table(shown.plain, shown.real, cells))


if __name__ == "__main__":
    main()
