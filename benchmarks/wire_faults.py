"""Faults at the wire: what a network, a controller or a gripper could send, and what became of the moving arm.

    python benchmarks/wire_faults.py [--only PATTERN] [--rounds 1] [--timeout-scale 1] [--json FILE]

Every fault is injected by the proxy of ``wire.py`` between the unmodified driver and the simulated controller, once
while a policy leads the tool in circles at full speed, or while the driver connects. In real time: about 5 s a fault.
Prints the table of docs/reliability.md.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, nan, pi
from pathlib import Path
from typing import Any

from drills import Drill, Outcome, Scene
from wire import ROBOT

from td3robot.simulators.process import free_host
from td3robot.simulators.sessions.ur import UrSession

STATE = ("actual_q", "actual_qd", "actual_TCP_pose", "target_q")
# Where the arm goes on, for so long after the fault [s].
LASTS_S = 2.5
BINARY = "\xff\xfe\x00\x81"


@dataclass(frozen=True, slots=True)
class WireFault:
    """One kind of fault.

    Attributes:
        name: For the table.
        kind: The group that it is counted in.
        rules: Those of the proxy: (service, do, values).
        says: A pattern in what the operator reads; None where nothing is to be noticed.
        why_not: Why nothing is to be noticed.
        connecting: Whether it is there while the driver connects, and not while the arm moves.
    """

    name: str
    kind: str
    rules: tuple[tuple[str, str, dict[str, Any]], ...]
    says: str | None
    why_not: str = ""
    connecting: bool = False

    def strike(self, scene: Scene) -> None:
        """Bring it about."""
        assert scene.wire is not None
        for service, do, values in self.rules:
            scene.wire.rule(service, do, **values)


def _tell(name: str, how: str, value: float = 0.0, index: int | None = None) -> tuple[str, str, dict[str, Any]]:
    where = {} if index is None else {"index": index}
    return "rtde", "field", {"name": name, "how": how, "value": value} | where


def _state(text: str, says: str | None, *rules: tuple[str, str, dict[str, Any]], why_not: str = "") -> WireFault:
    return WireFault(text, "falsified state", rules, says, why_not)


def _states() -> Iterator[WireFault]:
    never = "cannot be true|not usable"
    for value in (1e300, -1e300, nan, inf, 7.0):
        yield _state(f"q[0] = {value:g}", never, _tell("actual_q", "set", value, 0))
    for joint, offset in ((0, 0.5), (3, -0.5), (5, 0.15), (1, 0.05)):
        yield _state(f"q[{joint}] off by {offset:g} rad", "cannot be true|its tool|disagree", _tell(
            "actual_q", "add", offset, joint))  # fmt: skip
    yield _state("q[0] off by 0.015 rad", "its tool", _tell("actual_q", "add", 0.015, 0))
    yield _state("q[5] off by 0.015 rad", None, _tell("actual_q", "add", 0.015, 5),
                 why_not="within the bounds: the tool turns by less than 0.06 rad, and does not move")  # fmt: skip
    lies = "its tool|disagree|does not follow|cannot be true|not usable"
    for rate in (0.05, -0.05, 0.5):
        yield _state(f"q[2] drifts by {rate:g} rad/s", lies, _tell("actual_q", "ramp", rate, 2))
    yield _state("q drifts by 0.05 rad/s, all joints", lies, _tell("actual_q", "ramp", 0.05))
    yield _state("q frozen, clock runs", lies, _tell("actual_q", "freeze"))
    yield _state("q[0] frozen", lies, _tell("actual_q", "freeze", index=0))
    yield _state("q and dq frozen", lies, _tell("actual_q", "freeze"), _tell("actual_qd", "freeze"))
    yield _state("all of the posture frozen", lies, *(_tell(name, "freeze") for name in STATE))
    yield _state("posture frozen, dq 0", lies, *(_tell(name, "freeze") for name in STATE), _tell("actual_qd", "set"))
    yield _state("q all zero", lies, _tell("actual_q", "set"))
    yield _state("q with the sign turned", lies, _tell("actual_q", "scale", -1.0))
    yield _state("q in degrees", lies, _tell("actual_q", "scale", 180.0 / pi))
    for noise in (0.02, 0.2):
        yield _state(f"q with noise of {noise:g} rad", lies, _tell("actual_q", "noise", noise))
    yield _state("q with noise of 0.001 rad", None, _tell("actual_q", "noise", 0.001),
                 why_not="within the bounds of every check")  # fmt: skip
    for value in (1e300, nan, inf, 20.0):
        yield _state(f"dq[1] = {value:g}", never, _tell("actual_qd", "set", value, 1))
    for how, value in (("add", 0.1), ("add", -0.3), ("scale", -1.0), ("scale", 2.0), ("set", 0.0), ("freeze", 0.0)):
        yield _state(f"dq {how} {value:g}", "disagree", _tell("actual_qd", how, value))
    for value in (nan, 1e300, 0.0):
        yield _state(f"tool pose = {value:g}", "tool", _tell("actual_TCP_pose", "set", value))
    for index, offset in ((0, 0.05), (2, -0.02), (3, 0.3)):
        yield _state(f"tool[{index}] off by {offset:g}", "its tool", _tell("actual_TCP_pose", "add", offset, index))
    yield _state("tool frozen", "its tool", _tell("actual_TCP_pose", "freeze"))
    yield _state("tool drifts by 20 mm/s", "its tool", _tell("actual_TCP_pose", "ramp", 0.02, 1))
    yield _state("tool[0] off by 5 mm", None, _tell("actual_TCP_pose", "add", 0.005, 0),
                 why_not="within the bound of 10 mm")  # fmt: skip
    yield _state("target_q off by 0.3 rad in motion", None, _tell("target_q", "add", 0.3),
                 why_not="compared only before a motion begins")  # fmt: skip


def _clocks() -> Iterator[WireFault]:
    for text, says, how, value in (
        ("NaN", "clock|another time", "set", nan),
        ("infinite", "clock", "set", inf),
        ("1e300 s", "clock", "set", 1e300),
        ("0", "clock", "set", 0.0),
        ("backwards", "clock", "ramp", -2.0),
        ("5 s ahead", "clock", "add", 5.0),
        ("5 s back", "clock", "add", -5.0),
        ("frozen", "clock has not moved", "freeze", 0.0),
        ("twice as fast", "clock", "ramp", 1.0),
        ("at a tenth", "clock|cannot be true", "ramp", -0.9),
    ):
        yield WireFault(f"clock {text}", "falsified clock", (_tell("timestamp", how, value),), says)
    yield WireFault("clock 5 % fast", "falsified clock", (_tell("timestamp", "ramp", 0.05),), None,
                    "within the bound of 10 %")  # fmt: skip


def _modes() -> Iterator[WireFault]:
    def mode(text: str, says: str | None, *rules: Any, why_not: str = "") -> WireFault:
        return WireFault(text, "falsified modes", rules, says, why_not)

    for value in (0.0, 0.5, -1.0, nan):
        yield mode(f"speed scaling {value:g}", "slows the arm down", _tell("speed_scaling", "set", value))
    for value in (0.0, 0.5, nan, -1.0):
        yield mode(f"speed slider {value:g}", "speed slider", _tell("target_speed_fraction", "set", value))
    for value, says in ((3, "protective stop"), (5, "safeguard"), (6, "emergency"), (9, "mode 9"), (0, "mode 0"),
                        (-1, "mode -1"), (99, "mode 99")):  # fmt: skip
        yield mode(f"safety mode {value}", says, _tell("safety_mode", "set", value))
    for value in (-1, 0, 3, 5, 9):
        yield mode(f"robot mode {value}", "no longer running", _tell("robot_mode", "set", value))
    yield mode("runtime state stopped", "control script", _tell("runtime_state", "set", 1))
    yield mode("no program by its status bits", None, _tell("robot_status_bits", "set", 0),
               why_not="the runtime state says that the program runs, and the arm follows")  # fmt: skip
    for value in (0, 2, 255):
        yield mode(f"control script's state register {value}", "sign of life|refused|controller", _tell(
            "output_int_register_0", "set", value))  # fmt: skip


def _commands() -> Iterator[WireFault]:
    def command(text: str, says: str | None, *rules: Any, why_not: str = "") -> WireFault:
        turned = tuple((service, do, values | {"toward": ROBOT}) for service, do, values in rules)
        return WireFault(text, "falsified commands", turned, says, why_not)

    follow = "does not follow|protective stop|cannot be true|its tool|disagree|control script"
    for value in (0.3, -0.1):
        yield command(f"target[0] off by {value:g} rad", follow, _tell("input_double_register_0", "add", value))
    yield command("target[0] off by 0.02 rad", None, _tell("input_double_register_0", "add", 0.02),
                  why_not="within the servo's band of 0.06 rad")  # fmt: skip
    yield command("target[1] drifts by 0.1 rad/s", follow, _tell("input_double_register_1", "ramp", 0.1))
    yield command("target[0] frozen", follow, _tell("input_double_register_0", "freeze"))
    yield command("all targets frozen", follow, *(_tell(f"input_double_register_{i}", "freeze") for i in range(6)))
    yield command("targets all zero", follow, *(_tell(f"input_double_register_{i}", "set") for i in range(6)))
    yield command("targets 1 rad/s of noise", follow, _tell("input_double_register_2", "noise", 0.3))
    yield command("servoJ's time 1 s", follow, _tell("input_double_register_8", "set", 1.0))
    for value in (0, 255):
        yield command(f"command id {value} instead of servoJ", f"{follow}|sign of life|refused", _tell(
            "input_int_register_0", "set", value))  # fmt: skip
    yield command("servoStop instead of servoJ", f"{follow}|sign of life|refused", _tell(
        "input_int_register_0", "set", 16))  # fmt: skip


def _packages() -> Iterator[WireFault]:
    gone = (
        "clock|connection to the controller|sign of life|worker process|control script|not follow|cannot be true|"
        "not usable|disagree|tool|cannot be used|refused|slows|slider|safety|running|protective"
    )
    harmless = "the arm goes on: the next package says what is true"
    both: tuple[tuple[str, dict[str, Any]], ...] = (("to the driver", {}), ("to the robot", {"toward": ROBOT}))
    for where, toward in both:
        robot = bool(toward)

        def package(
            what: str, says: str | None, do: str, why_not: str = "", *, _w: str = where, _t: dict[str, Any] = toward,
            **values: Any,
        ) -> WireFault:  # fmt: skip
            return WireFault(f"RTDE {_w}: {what}", "packages", (("rtde", do, values | _t),), says, why_not)

        yield package("20 ms late", None, "delay", harmless, s=0.02)
        yield package("up to 30 ms late", None, "delay", harmless, s=0.0, jitter=0.03)
        yield package("0.3 s late", gone, "delay", s=0.3)
        yield package("silent", gone, "hold")
        yield package("30 % lost", None, "drop", harmless, share=0.3)
        yield package("95 % lost", gone, "drop", share=0.95)
        yield package("twice each", None, "repeat", harmless, times=1)
        yield package("every two swapped", None, "swap", "both arrive at once: what is read is 8 ms older, and true")
        yield package(
            "those of 0.3 s ago", None if robot else gone, "old", "the arm follows within the band of 0.5 s", s=0.3
        )
        yield package("those of 1 s ago", gone, "old", s=1.0)
        yield package("half of each, and said so", gone, "cut", bytes=60, sized=True)
        yield package("8 bytes short, and said so", gone, "cut", bytes=8, sized=True)
        yield package("8 bytes short, unsaid", gone, "cut", bytes=8)
        yield package("1 byte short", gone, "cut", bytes=1)
        yield package("a bit of the size flipped", gone, "flip", at=0, bit=0x02)
        yield package("a bit of the kind flipped", gone, "flip", at=2)
        yield package(
            "a bit of the recipe's number flipped", None if not robot else gone, "flip", "ur_rtde never reads it", at=3
        )
        yield package("text in between", gone, "insert", text="hello")
        yield package("zeros in between", gone, "insert", text="\x00" * 7)
        yield package("connections closed", gone, "refuse")
    yield WireFault("all connections closed", "packages", (("all", "refuse", {}),), gone)
    yield WireFault("byte by byte", "packages", (("rtde", "trickle", {"s": 0.001}),), gone)
    yield WireFault("a flood", "packages", (("rtde", "flood", {"s": 0.001, "text": "x" * 4096}),), gone)


def _grippers() -> Iterator[WireFault]:
    def gripper(what: str, says: str | None, do: str, why_not: str = "", **values: Any) -> WireFault:
        return WireFault(f"gripper: {what}", "gripper", (("gripper", do, values),), says, why_not)

    for answer in ("POS 999", "POS 256", "POS -1", "POS " + "9" * 5000, "POS ?", "POS", "OBJ 3", BINARY, ""):
        yield gripper(f"answers {answer[:12]!a} to POS", "gripper", "answer", to="GET POS", text=answer)
    for answer in ("OBJ 77", "OBJ ?"):
        yield gripper(f"answers {answer!r} to OBJ", "gripper", "answer", to="GET OBJ", text=answer)
    for answer in ("STA 0", "STA 4"):
        yield gripper(f"answers {answer!r} to STA", "gripper", "answer", to="GET STA", text=answer)
    yield gripper("reports fault 5", "fault code 5", "answer", to="GET FLT", text="FLT 5")
    yield gripper("POS without the end of its line", None, "answer", to="GET POS", text="POS 3", line=False,
                  why_not="some URCaps answer so")  # fmt: skip
    yield gripper("no answer to POS", "did not answer", "answer", to="GET POS")
    yield gripper("silent", "did not answer", "hold")
    yield gripper("closes", "gripper", "refuse")
    yield gripper("50 ms late", None, "delay", s=0.05, why_not="within gripper.answer_timeout_s and max_age_s")
    yield gripper("0.25 s late", "gripper", "delay", s=0.25)
    yield gripper("1 s late", "gripper", "delay", s=1.0)
    yield gripper("byte by byte, 0.2 s apart", "gripper", "trickle", s=0.2)
    yield gripper("floods", "gripper", "flood", s=0.001, text="x" * 4096)
    yield gripper("each answer twice", None, "repeat", times=1, why_not="what nobody asked for is dropped")
    yield gripper("POS frozen at 120", None, "answer", to="GET POS", text="POS 120",
                  why_not="a position that can be true; the gripper does not contradict it")  # fmt: skip
    yield gripper("does not get its requests", "did not answer", "hold", toward=ROBOT)


def _connecting() -> Iterator[WireFault]:
    def meeting(what: str, says: str | None, service: str, do: str, why_not: str = "", **values: Any) -> WireFault:
        rules = ((service, do, values),)
        return WireFault(f"connecting: {what}", "while connecting", rules, says, why_not, connecting=True)

    one = "dashboard|controller|robot"
    yield meeting("the dashboard hangs", "dashboard", "dashboard", "hold")
    yield meeting("the dashboard closes", one, "dashboard", "refuse")
    yield meeting("the dashboard trickles", "dashboard", "dashboard", "trickle", s=0.3)
    yield meeting("the dashboard floods", "dashboard", "dashboard", "flood", s=0.0, text="x" * 16384)
    yield meeting("the dashboard is binary", one, "dashboard", "answer", to="", text=BINARY * 8)
    for text, to, answer in (
        ("another model", "get robot model", "UR10"),
        ("a model of 5,000 letters", "get robot model", "U" * 5000),
        ("PolyScope 3", "PolyscopeVersion", "URSoftware 3.15.8.106339 (Nov 30 2021)"),
        ("PolyScope X", "PolyscopeVersion", "URSoftware 10.7.0.1 (Jan 1 2025)"),
        ("local control", "is in remote control", "false"),
        ("no answer about remote control", "is in remote control", "could not understand"),
        ("no serial number", "get serial number", "abc"),
    ):
        yield meeting(text, one, "dashboard", "answer", to=to, text=answer)
    yield meeting("RTDE is silent", one, "rtde", "hold")
    yield meeting("RTDE closes", one, "rtde", "refuse")
    yield meeting("the script's port closes", one, "script", "refuse", toward=ROBOT)
    yield meeting("the script is not passed on", one, "script", "hold", toward=ROBOT)
    yield meeting("the script loses its end", one, "script", "cut", bytes=200, toward=ROBOT)
    yield meeting("a bit of the script flipped", one, "script", "flip", at=5000, bit=1, toward=ROBOT)
    for text, do, values in (
        ("is silent", "hold", {}),
        ("closes", "refuse", {}),
        ("is cut", "cut", {"bytes": 30}),
        ("is text", "insert", {"text": "hello hello"}),
    ):
        yield meeting(f"the primary port {text}", "controller|calibration|kinematics", "primary", do, **values)
    for answer in ("STA 0", "STA ?", BINARY):
        yield meeting(f"the gripper answers {answer!a} to STA", "gripper", "gripper", "answer", to="STA", text=answer)
    yield meeting("the gripper is silent", "gripper", "gripper", "hold")
    yield meeting("the gripper closes", "gripper", "gripper", "refuse")
    for name, value in (("actual_q", 0.15), ("target_q", 0.15), ("actual_TCP_pose", 0.05)):
        yield WireFault(f"before the first target: {name} off by {value:g}", "before the first target",
                        (_tell(name, "add", value, 0),), "jump|its tool", connecting=True)  # fmt: skip
    yield WireFault("before the first target: actual_q and target_q off by 0.15", "before the first target",
                    (_tell("actual_q", "add", 0.15, 0), _tell("target_q", "add", 0.15, 0)), "its tool",
                    connecting=True)  # fmt: skip


GROUPS: tuple[Callable[[], Iterator[WireFault]], ...] = (
    _states, _clocks, _modes, _commands, _packages, _grippers, _connecting,
)  # fmt: skip
FAULTS: tuple[WireFault, ...] = tuple(fault for group in GROUPS for fault in group())


def drilled(fault: WireFault) -> Drill:
    """Return the drill of a fault that strikes while the arm moves."""
    return Drill(fault.name, fault.strike, fault.says, None if fault.says is None else 1.5, lasts_s=LASTS_S)


def inject(scene: Scene, fault: WireFault) -> dict[str, Any]:
    """Inject one fault; returns what became of it, as plain values."""
    row: dict[str, Any] = {"name": fault.name, "kind": fault.kind, "expected": fault.says is not None}
    if fault.connecting:
        said, took = scene.refusal(fault.strike)
        return row | {"said": said, "told_s": took, "rest_s": None, "latched": None, "left": [], "tool_m_s": None}
    outcome: Outcome = scene.perform(drilled(fault))
    return row | outcome.to_json() | {"name": fault.name}


def verdict(fault: WireFault, row: dict[str, Any]) -> str:
    """Return what is wrong with an outcome, or nothing."""
    said, wrong = row["said"], []
    if fault.says is not None and said is None:
        wrong.append("not noticed")
    if fault.says is None and said is not None:
        wrong.append("stopped")
    if fault.says is not None and said is not None and re.search(fault.says, said) is None:
        wrong.append("says something else")
    if not fault.connecting and said is not None:
        wrong += [] if row["latched"] else ["not latched"]
        wrong += [] if row["rest_s"] is not None and row["rest_s"] - row["told_s"] < 1.0 else ["no rest"]
    wrong += ["left something"] if row["left"] else []
    return ", ".join(wrong)


def _table(rows: list[dict[str, Any]]) -> str:
    """Return the counts as Markdown."""
    lines = [
        "| faults | injected | noticed | at rest after, median and worst | latched | not noticed |",
        "|" + "---|" * 6,
    ]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        noticed = [row for row in mine if row["said"] is not None]
        rests = sorted(1e3 * row["rest_s"] for row in noticed if row["rest_s"] is not None)
        rest = f"{rests[len(rests) // 2]:.0f}, {rests[-1]:.0f} ms" if rests else "nothing moved"
        latched = sum(row["latched"] is not None for row in noticed)
        missed = "; ".join(row["name"] for row in mine if row["said"] is None) or "none"
        lines.append(f"| {kind} | {len(mine)} | {len(noticed)} | {rest} | {latched} | {missed} |")
    return "\n".join(lines)


def main() -> None:
    """Inject the faults and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names that match")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--timeout-scale", type=float, default=1.0, help="how late targets and states may be, for a busy computer"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if re.search(arguments.only, fault.name)] * arguments.rounds
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        far = free_host(UrSession.ports)
        near = far.replace("127.0.0.", "127.0.1.")
        scene = Scene(far, Path(folder), timeout_scale=arguments.timeout_scale, tasks=("reach",), near=near)
        try:
            for fault in faults:
                row = inject(scene, fault)
                row["wrong"] = verdict(fault, row)
                rows.append(row)
                print(f"{row['wrong'] or 'ok':16} {fault.name}: {row['said']} "
                      f"[told {row['told_s']}, rest {row['rest_s']}, tool {row['tool_m_s']}]", flush=True)  # fmt: skip
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(rows, indent=1))
        finally:
            scene.close()
    print("\n" + _table(rows) + "\n")
    print(dict(Counter(row["wrong"] or "as expected" for row in rows)))


if __name__ == "__main__":
    main()
