"""Serves a stand-in for an FR3 with its hand on a loopback address, with motion limits enforced.

Runs as a child process in the environment that ``launch/franka_sim.sh`` makes, with nothing of td3robot but
``processes``: franka-sim pins an old NumPy and an old MuJoCo. Nothing is downloaded: franka-sim would clone its model,
but gets the one in the wheel franky-sim instead.

The first message has the options of :func:`serve`. Every answer is a dictionary with a key ``event``: ``ready`` once,
``reflex`` for every motion that the stand-in aborted, ``violation`` for each limit that a command broke (once per kind
and motion), ``flushed``, and ``end``. The message ``reflex`` stops the arm as a contact would;
``open_hand`` opens the hand as another program would; ``flush`` writes out the log. The process ends when the parent
closes the channel.

:func:`run_check` checks a log of 1 kHz commands against the FR3's limits, with franka-sim's offline checker.
"""

import gc
import logging
import os
import struct
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any
from xml.etree import ElementTree

import numpy as np
from franka_sim import mujoco_franka_sim
from franka_sim.control_modes import ControlMode
from franka_sim.franka_sim_server import FrankaSimServer
from franka_sim.limits import tables
from franka_sim.limits.checker import MotionLimitChecker

from td3robot.processes import Channel, ChannelClosedError, Parent, raise_priority

# Reflected inertia of the motors at joints 5 to 7 [kg m2]. The model's 0.074 lets joint 7 buzz in this simulator.
WRIST_ARMATURE = 0.195
# How long a thread may keep the interpreter while another waits [s]; Python's own 5 ms are five cycles.
SWITCH_S = 1e-4
# A robot gives its client 1 ms. Without a real-time kernel, an answer is sometimes later, and a lost cycle would count
# as a jump that was never commanded. The stand-in, and its cycles with it, waits this long [s].
PATIENCE_S = 0.1
# The protocol's number for a contact detected at a joint.
JOINT_REFLEX = 6
# One record of the command log: time on this computer [s], message number, mode, and q_c or dq_c [rad or rad/s].
RECORD = struct.Struct("<dQq7d7d")
LOG = np.dtype([("t", "f8"), ("id", "u8"), ("mode", "i8"), ("c", "f8", 7), ("q", "f8", 7)])
# Initial posture: Franka's "ready" posture, turned towards +y [rad].
READY = (1.570796, -0.785398, 0.0, -2.356194, 0.0, 1.570796, 0.785398)
# The hand on the flange, as in Desk: mass [kg]; distance from the frame of joint 7 to the flange, and from there to the
# point between the fingertips [m]; rotation about the flange's z axis (cosine, sine) [1].
HAND_KG, FLANGE_M, TOOL_M = 0.73 + 2 * 0.015, 0.107, 0.1034
HAND_TURN = (0.5**0.5, -(0.5**0.5))
# How another program opens the hand: to this width, at this speed [m, m/s].
WIDEST_M, HAND_M_S = 0.08, 0.1
MODES = {ControlMode.POSITION: 1, ControlMode.VELOCITY: 2}


class Events:
    """Events sent to the parent, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._lock, self._begin = channel, threading.Lock(), monotonic()

    def send(self, event: str, **values: Any) -> None:
        """Send one event; end if the parent is gone."""
        with self._lock:
            try:
                self._channel.send({"event": event, "t": round(monotonic() - self._begin, 4), **values})
            except ChannelClosedError:
                os._exit(0)


class WatchedServer(FrankaSimServer):  # type: ignore[misc]  # there are no types of it
    """The original server, with its verdicts reported, and the commands it received written to a file."""

    # A delayed thread of the server must not make the others publish outdated values.
    _DRAIN_GATE_TIMEOUT = PATIENCE_S

    def __init__(self, events: Events, log: Path | None, **options: Any) -> None:
        self._events, self.reflexes, self.violations = events, 0, 0
        self._log = None if log is None else log.open("wb", buffering=1 << 16)
        super().__init__(**options)
        self._report_hand()

    def reset_state(self) -> None:
        """Begin a connection, with the hand known from the start."""
        super().reset_state()
        self._report_hand()

    def _report_hand(self) -> None:
        """Report the tool like a robot whose end effector was chosen in Desk; franka-sim stops at joint 7."""
        robot_state, (c, s) = self.robot_state, HAND_TURN
        robot_state.state["m_ee"] = HAND_KG
        robot_state.state["F_T_EE"] = [c, s, 0.0, 0.0, -s, c, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, TOOL_M, 1.0]
        pack, reach = robot_state.pack_state, FLANGE_M + TOOL_M

        def packed() -> bytes:
            """Return the packed state, with the tool's pose in place of joint 7's."""
            joint = robot_state.state["O_T_EE"]
            x, y, z, o = (joint[4 * i : 4 * i + 3] for i in range(4))  # column by column
            tool = [
                *(c * a + s * b for a, b in zip(x, y, strict=True)), 0.0,
                *(c * b - s * a for a, b in zip(x, y, strict=True)), 0.0,
                *z, 0.0, *(p + reach * a for p, a in zip(o, z, strict=True)), 1.0,
            ]  # fmt: skip
            robot_state.state["O_T_EE"] = tool
            try:
                return bytes(pack())
            finally:
                robot_state.state["O_T_EE"] = joint

        robot_state.pack_state = packed

    def flush(self) -> None:
        """Write out the rest of the command log."""
        if self._log is not None:
            self._log.flush()

    def _drain_gate(self, answer_deadline: float = 0.0) -> float:
        """Wait longer for the client's answer to a state, unless communication is being tested."""
        timeout_scale = 0.0 if self.enforce_comm_constraints else PATIENCE_S
        return float(super()._drain_gate(answer_deadline + timeout_scale))

    def _build_motion_limit_checker(self) -> Any:
        checker = super()._build_motion_limit_checker()
        report = checker.report

        def report_and_send(violation: Any, *, enforced: bool) -> None:
            """Count and report a violation, and pass it on."""
            if checker.should_log(violation):
                self.violations += 1
                self._events.send("violation", what=violation.describe(), enforced=enforced)
            report(violation, enforced=enforced)

        checker.report = report_and_send
        return checker

    def _absorb_within_motion_limits(self, command: dict[str, Any], *, fresh: bool) -> bool:
        mode = MODES.get(self.control_mode)
        if self._log is not None and mode is not None and fresh:
            q = self.robot_state.state["q"]
            values = command["q_c"] if mode == MODES[ControlMode.POSITION] else command["dq_c"]
            self._log.write(RECORD.pack(monotonic(), command["message_id"], mode, *values, *q))
        return bool(super()._absorb_within_motion_limits(command, fresh=fresh))

    def _abort_with_error(self, error_index: Any, reason: str, motion_id: int = 0) -> None:
        self.reflexes += 1
        self._events.send("reflex", why=reason)
        super()._abort_with_error(error_index, reason, motion_id)


def write_models(folder: Path) -> tuple[Path, Path]:
    """Write arm and hand from the wheel's model to the two files that franka-sim needs, without visual meshes."""
    found = find_spec("franky_sim")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package franky-sim, which holds the FR3's model, is not installed here")
    assets = Path(found.submodule_search_locations[0]) / "assets"
    arm = _lean(assets)
    _parent_of(arm, "body", "hand").remove(_named(arm, "body", "hand"))
    for number in (5, 6, 7):
        _named(arm, "joint", f"fr3_joint{number}").set("armature", str(WRIST_ARMATURE))
    hand = _lean(assets)
    world, body = _only(hand, "worldbody"), _named(hand, "body", "hand")
    world.clear()
    world.append(body)
    body.set("childclass", "fr3")
    # franka-sim attaches the body in its own frame, and expects it turned by 180 degrees, as in the Menagerie.
    body.set("pos", "0 0 0")
    body.set("quat", "0 0 0 1")
    for tree in (arm, hand):
        used = {geom.get("mesh") for geom in tree.iter("geom")}
        for mesh in [mesh for mesh in tree.iter("mesh") if mesh.get("file") and mesh.get("name") not in used]:
            _only(tree, "asset").remove(mesh)
    return _written(arm, folder / "fr3.xml"), _written(hand, folder / "hand.xml")


def _lean(assets: Path) -> ElementTree.Element:
    tree = ElementTree.parse(assets / "fr3.xml").getroot()
    _only(tree, "compiler").set("meshdir", str(assets / "meshes"))  # the file says "assets", but they are not there
    for tag in ("actuator", "tendon", "equality", "keyframe", "contact"):
        tree.remove(_only(tree, tag))
    for body in tree.iter("body"):
        for geom in body.findall("geom[@class='visual']"):
            body.remove(geom)
    return tree


def _only(tree: ElementTree.Element, tag: str) -> ElementTree.Element:
    return next(tree.iter(tag))


def _named(tree: ElementTree.Element, tag: str, name: str) -> ElementTree.Element:
    return next(element for element in tree.iter(tag) if element.get("name") == name)


def _parent_of(tree: ElementTree.Element, tag: str, name: str) -> ElementTree.Element:
    return next(parent for parent in tree.iter() for child in parent.findall(tag) if child.get("name") == name)


def _written(tree: ElementTree.Element, path: Path) -> Path:
    ElementTree.ElementTree(tree).write(path)
    return path


def _make_punctual() -> None:
    """Keep the 1 ms cycles: threads get the interpreter sooner, and no garbage collection pauses everything."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.disable()


def run_child(parent: Parent) -> None:
    """Serve until the parent is gone; the first message has the options."""
    options = parent.next()
    if options is not None:
        serve(parent, **options)


def serve(
    parent: Parent,
    host: str,
    log: Path | None = None,
    enforce_communication: bool = False,
    instant_hand: bool = False,
    object_width: float | None = None,
    priority: int = 40,
) -> None:
    """Serve until the parent is gone.

    Args:
        parent: Gets the events.
        host: A 127.x.x.x address; ports 1337 and 1338 on it.
        log: A file for every 1 kHz command.
        enforce_communication: Abort on lost cycles, too.
        instant_hand: Leave out the dynamics of the fingers.
        object_width: Width of something between the fingers [m].
        priority: Priority on SCHED_FIFO; 0 leaves the scheduler alone.
    """
    if not host.startswith("127."):
        raise SystemExit(f"the host {host} is not a loopback address; the stand-in serves this computer only")
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    events = Events(parent.channel)
    with tempfile.TemporaryDirectory(prefix="fr3-") as folder:
        arm, hand = write_models(Path(folder))
        mujoco_franka_sim.ARM_INITIAL_Q = np.array(READY)
        os.environ["FR3_MJCF"], os.environ["FRANKA_HAND_MJCF"] = str(arm), str(hand)
        realtime = raise_priority(priority)
        server = WatchedServer(
            events, log, host=host, enforce_motion_limits=True, enforce_comm_constraints=enforce_communication,
            gripper_physics=not instant_hand, gripper_object_width=object_width,
        )  # fmt: skip
        server.physics_sim.initialize_simulation()  # reads the model files
    server.physics_sim.initialize_simulation = lambda: None
    _make_punctual()
    threading.Thread(target=_announce, args=(server, events, realtime), daemon=True).start()
    threading.Thread(target=_take_orders, args=(parent, server, events), daemon=True).start()
    server.start()


def _announce(server: WatchedServer, events: Events, realtime: bool) -> None:
    while not (server.physics_sim.running and server.gripper_server.running):
        threading.Event().wait(0.02)
    events.send("ready", host=server.host, port=server.port, pid=os.getpid(), realtime=realtime)


def _take_orders(parent: Parent, server: WatchedServer, events: Events) -> None:
    """Follow the parent's orders, and end with the channel."""
    while (order := parent.next()) is not None:
        if order == "flush":
            server.flush()
            events.send("flushed")
        if order == "open_hand":
            threading.Thread(target=server.gripper_server.backend.move, args=(WIDEST_M, HAND_M_S), daemon=True).start()
        if order == "reflex":
            server._abort_with_error(JOINT_REFLEX, "joint_reflex: asked for by a drill")
    server.flush()
    events.send("end", reflexes=server.reflexes, violations=server.violations)
    os._exit(0)


# A pause of this many cycles begins a new motion; fewer commands than the second number are not a motion.
PAUSE, SHORTEST = 50, 4


def run_check(parent: Parent) -> None:
    """Check the log that the first message names, and answer with the result."""
    parent.answer(check_limits(parent.next()))


def check_limits(path: Path) -> dict[str, Any]:
    """Check every command of a log.

    Returns:
        ``commands``, ``gaps`` (cycles without one), ``violations`` in words, and the largest ``acceleration`` [rad/s2],
        ``jerk`` [rad/s3] and ``speed_share`` (joint speed by what the arm allows there).
    """
    data = np.fromfile(path, dtype=LOG)
    ids = data["id"].astype(np.int64)
    cuts = np.flatnonzero((np.diff(ids) > PAUSE) | (np.diff(ids) <= 0)) + 1
    violations: list[str] = []
    peaks = np.zeros(3)
    for part in np.split(data, cuts):
        if len(part) >= SHORTEST:
            violations += _check(part)
            peaks = np.maximum(peaks, _peaks(part))
    acceleration, jerk, share = peaks.tolist()
    return {
        "commands": len(data),
        "gaps": int((np.diff(ids) > 1).sum()),
        "violations": violations,
        "acceleration": acceleration,
        "jerk": jerk,
        "speed_share": share,
    }


def _check(data: Any) -> list[str]:
    checker = MotionLimitChecker(enforce=False)
    first = data["c"][0].tolist()
    at_rest = {"q_d": first, "q": first, "dq_d": [0.0] * 7, "ddq_d": [0.0] * 7}
    checker.start_motion(ControlMode.POSITION, at_rest, 1)
    found = []
    for message, commanded, q in zip(data["id"].tolist(), data["c"].tolist(), data["q"].tolist(), strict=True):
        command = {"message_id": message, "q_c": commanded}
        checker.note_published(message)
        violation = checker.check(command, q)
        if violation is not None:
            found.append(f"{message}: {violation.describe()}")
        checker.record(command)
    return found


def _peaks(data: Any) -> Any:
    steps = np.diff(data["id"].astype(np.int64))
    velocity = np.diff(data["c"], axis=0) / steps[:, None] * 1e3
    acceleration = np.diff(velocity, axis=0) * 1e3
    jerk = np.diff(acceleration, axis=0) * 1e3
    one = (steps[1:] == 1) & (steps[:-1] == 1)
    share = 0.0
    for v, q in zip(velocity[::10], data["c"][1::10], strict=False):
        up, down = np.array(tables.upper_joint_velocity_limits(q)), np.array(tables.lower_joint_velocity_limits(q))
        share = max(share, float(np.max(np.where(v > 0, v / np.maximum(up, 1e-9), v / np.minimum(down, -1e-9)))))
    most, jerks = np.abs(acceleration[one]).max(initial=0.0), np.abs(jerk[one[1:] & one[:-1]]).max(initial=0.0)
    return np.array([most, jerks, share])
