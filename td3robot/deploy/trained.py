"""Checks whether a cell's camera and gripper are within what a policy was trained for; beyond it, a person decides."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from time import monotonic, sleep

from td3robot.config import DisturbanceConfig
from td3robot.robots.camera_figures import FRAMES, Arrival, CameraFigures, camera_figures
from td3robot.robots.objects import Objects
from td3robot.robots.physical import ATTENTION, Check
from td3robot.statistics import wilson_interval

# How long to watch a tracker's datagrams [s].
WATCH_S = 2.0
# Measurement errors from a few dozen frames: rate and noise by a share, times and noise by [s], [m].
RATE_SHARE, NOISE_SHARE, TIME_S, NOISE_M = 0.05, 0.2, 0.005, 0.0001
# Tolerance as a share of a gripper's fastest speed: it is set in counts, and training's limits are rounded.
SPEED_SHARE = 0.01
# What to do if stamps say nothing.
STAMP = "a stamp that is made when sending cannot tell; stamp each pose with the time of its frame's exposure"


def check_gripper_speed(check: Check, speed: float | None, trained: DisturbanceConfig) -> None:
    """Compare the speed of a cell's gripper, as a share of its fastest, with that of training."""
    if speed is None:
        return
    low, high = trained.gripper_speed
    _compare(
        check, "gripper speed", f"{_range(100 * low, 100 * high)} % of its fastest", f"{_number(100 * speed)} %",
        low - SPEED_SHARE <= speed <= high + SPEED_SHARE,
        f"change its speed in the cell's file, or {_train('gripper_speed', low, high, speed)}",
    )  # fmt: skip


def check_camera(check: Check, objects: Objects, trained: DisturbanceConfig, control_hz: float) -> None:
    """Watch a tracker's datagrams for a while, and compare the camera behind it with that of training.

    Args:
        check: Collects the findings.
        objects: At rest; without a tracker, there is nothing to compare.
        trained: What the policy was trained for.
        control_hz: Control periods a second.

    Raises:
        TrackerError: No datagram can be received.
    """
    begin = monotonic()
    if objects.arrivals() is None:
        return
    sleep(WATCH_S)
    arrivals = [arrival for arrival in objects.arrivals() or () if arrival.received >= begin]
    by_name: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_name[arrival.name].append(arrival)
    for name, found in by_name.items():
        compare_camera(check, found, trained, control_hz, "" if len(by_name) == 1 else f" of {name!r}")


def compare_camera(
    check: Check, arrivals: Sequence[Arrival], trained: DisturbanceConfig, control_hz: float, of: str = ""
) -> None:
    """Compare the camera behind the datagrams of one object at rest with that of training.

    Args:
        check: Collects the findings.
        arrivals: The datagrams.
        trained: What the policy was trained for.
        control_hz: Control periods a second.
        of: Appended to the names of the findings.
    """
    figures = camera_figures(arrivals)
    if figures is None:
        check.add(
            f"camera{of}", f"at least {FRAMES} frames in {WATCH_S:g} s", f"{len(arrivals)}", False,
            "too few to measure it: check the tracker, and what is in its view", ATTENTION,
        )  # fmt: skip
        return
    _compare_rate(check, f"camera rate{of}", figures, trained, control_hz)
    _compare_lost(check, f"camera frames lost{of}", figures, trained)
    _compare_latency(check, f"camera latency{of}", figures, trained)
    _compare_jitter(check, f"camera jitter{of}", figures, trained)
    _compare(
        check, f"camera noise{of}", f"a standard deviation of {_number(1e3 * trained.object_noise_m)} mm",
        f"{_number(1e3 * figures.noise_m)} mm",
        figures.noise_m <= trained.object_noise_m * (1.0 + NOISE_SHARE) + NOISE_M,
        "see that the object rests, and to light and marker, or "
        f"{_train_up_to('object_noise_m', trained.object_noise_m, figures.noise_m)}",
    )  # fmt: skip


def _compare_rate(
    check: Check, name: str, figures: CameraFigures, trained: DisturbanceConfig, control_hz: float
) -> None:
    rate = figures.rate_hz
    if trained.camera_rate_hz is None:
        low = high = control_hz
        words = f"a pose in each control period, {_number(control_hz)} a second"
    else:
        low, high = trained.camera_rate_hz
        words = f"{_range(low, high)} frames a second"
    if figures.lost is None:
        low *= 1.0 - trained.camera_drop  # frames that arrived, without those that were lost
    # Frames that arrive more often than control periods are not seen.
    inside = low * (1.0 - RATE_SHARE) <= rate and (rate <= high * (1.0 + RATE_SHARE) or high >= control_hz)
    _compare(
        check, name, words, f"{_number(rate)} frames a second", inside,
        f"{'raise' if rate < low else 'lower'} the camera's rate, or {_train('camera_rate_hz', low, high, rate)}",
    )  # fmt: skip


def _compare_lost(check: Check, name: str, figures: CameraFigures, trained: DisturbanceConfig) -> None:
    words = f"up to {_number(100 * trained.camera_drop)} %"
    if figures.lost is None:
        check.add(name, f"trained with {words}", "not known: frames come too unevenly to tell", True, "")
        return
    exposed = figures.lost + figures.frames
    share = figures.lost / exposed
    _compare(
        check, name, words, f"{_number(100 * share)} % ({figures.lost} of {exposed})",
        wilson_interval(figures.lost, exposed)[0] <= trained.camera_drop,
        f"see to network, light and marker, or {_train_up_to('camera_drop', trained.camera_drop, share)}",
    )  # fmt: skip


def _compare_latency(check: Check, name: str, figures: CameraFigures, trained: DisturbanceConfig) -> None:
    low, high = trained.camera_latency_s
    words, latency = f"{_range(1e3 * low, 1e3 * high)} ms", figures.latency_s
    if latency is not None:
        _compare(
            check, name, words, f"{_number(1e3 * latency)} ms by its stamps", low - TIME_S <= latency <= high + TIME_S,
            f"see to exposure, computing and network, or {_train('camera_latency_s', low, high, latency)}",
        )  # fmt: skip
        return
    advice = STAMP
    if figures.age_s < -TIME_S:
        advice = "stamps of the future cannot tell; set both clocks by the network"
    found = f"not known: stamps are {_number(1e3 * figures.age_s)} ms old"
    check.add(name, f"trained with {words}", found, False, advice, ATTENTION)


def _compare_jitter(check: Check, name: str, figures: CameraFigures, trained: DisturbanceConfig) -> None:
    most, jitter = trained.camera_jitter_s, figures.jitter_s
    words = f"up to {_number(1e3 * most)} ms"
    if jitter is None:
        check.add(name, f"trained with {words}", "not known: frames come too unevenly to tell", False, STAMP, ATTENTION)
        return
    _compare(
        check, name, words, f"{_number(1e3 * jitter)} ms", jitter <= most + TIME_S,
        f"see to network and load of the camera's computer, or {_train_up_to('camera_jitter_s', most, jitter)}",
    )  # fmt: skip


def _compare(check: Check, name: str, trained: str, found: str, inside: bool, advice: str) -> None:
    """Add a finding; a person decides about what is outside training's range."""
    check.add(
        name, f"trained with {trained}", f"{found}, {'inside' if inside else 'outside'}", inside,
        f"the policy was trained with {trained}, and this cell has {found}: {advice}", ATTENTION,
    )  # fmt: skip


def _train(key: str, low: float, high: float, found: float) -> str:
    """Return advice on how to train for what was found as well."""
    low, high = min(low, _rounded(found, floor)), max(high, _rounded(found, ceil))
    return f"train with environment.disturbance.{key}=[{low:g}, {high:g}]"


def _train_up_to(key: str, most: float, found: float) -> str:
    return f"train with environment.disturbance.{key}={max(most, _rounded(found, ceil)):g}"


def _rounded(value: float, how: Callable[[float], int]) -> float:
    """Return a value above 0 rounded to two digits."""
    if value <= 0.0:
        return 0.0
    digits = 10.0 ** (1 - floor(log10(value)))
    return how(value * digits) / digits


def _range(low: float, high: float) -> str:
    """Return a range as text, or its only value."""
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    """Return a value as text with two digits; thousandths are below what is measured here."""
    if abs(value) < 1e-3:
        return "0"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"
