"""What a viewer costs a training: steps per second without and with one attached, in turn in one run.

    python benchmarks/viewer.py [--config ur5e_reach] [--seconds 20] [--rounds 3]
    python benchmarks/viewer.py --rehearsal 4     missed control ticks of a rehearsal whose page is open, in 4 episodes

One training runs all the time. The viewer (``td3robot view RUN --beside``, as ``train --view`` starts it) is attached
in every second part; a client on loopback reads every message of its page, as a browser would, and draws nothing. The
client stands back as the viewer does: what a browser takes is another matter. Steps are those that ``metrics.csv``
tells. Nothing else should run beside it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from td3robot.metrics import METRICS, read_log
from td3robot.view.viewer_process import run_when_idle

# Counting begins when the viewer has started: when it took less than this share of a core over so long [1, s].
STARTED, SETTLE_S = 0.4, 3.0
# What a browser sends first: where its camera is.
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (1.0, 1.0, 1.0), "fov": 1.0, "near": 0.01,
    "far": 100.0, "image_height": 600, "image_width": 800, "look_at": (0.0, 0.0, 0.0), "up_direction": (0.0, 0.0, 1.0),
}  # fmt: skip


class Client:
    """Reads a page's messages until closed."""

    def __init__(self, address: str) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(address,), daemon=True)
        self._thread.start()

    def _read(self, address: str) -> None:
        run_when_idle(threading.get_native_id())
        import viser  # its messages have a version

        with connect(address, subprotocols=[f"viser-v{viser.__version__}"], max_size=None) as link:
            link.send(msgspec.msgpack.encode(CAMERA))
            while not self._over.is_set():
                try:
                    self.bytes += len(link.recv(timeout=0.5))
                except TimeoutError:
                    continue
                except ConnectionClosed:
                    return

    def close(self) -> None:
        """Leave the page."""
        self._over.set()
        self._thread.join()


def steps(run: Path) -> int:
    """Return the last step that a run's metrics tell."""
    return int(read_log(run, METRICS)["steps_per_second"][-1][0])


def rate(run: Path, seconds: float) -> float:
    """Return steps per second between the first and the last new row of a while."""
    first = steps(run)
    while (begin := steps(run)) == first:
        sleep(0.01)
    since = monotonic()
    end, at = begin, since
    while monotonic() - since < seconds:
        sleep(0.01)
        if (now := steps(run)) != end:
            end, at = now, monotonic()
    return (end - begin) / (at - since)


def attach(run: Path) -> tuple[subprocess.Popen[bytes], Client]:
    """Start the viewer of a run, and a client of its page."""
    process = subprocess.Popen(
        [sys.executable, "-m", "td3robot", "view", str(run), "--beside", "--no-open"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    run_when_idle(process.pid)
    client = Client(f"ws://{_address(process)}")
    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()
    end = monotonic() + 60.0
    before = cpu_s(process.pid)
    while monotonic() < end:
        sleep(SETTLE_S)
        taken, before = cpu_s(process.pid) - before, cpu_s(process.pid)
        if client.bytes > 10_000 and taken < STARTED * SETTLE_S:
            break
    return process, client


def watch_rehearsal(config: str, episodes: int) -> None:
    """Rehearse a policy with an open page, and print how many control ticks were missed."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "td3robot", "rehearse", config, "--episodes", str(episodes), "--view", "--json"],
            cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        client = Client(f"ws://{_address(process)}")
        assert process.stderr is not None
        assert process.stdout is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()
        report = json.loads(process.stdout.read())
        client.close()
    arm = report["arm"]
    print(
        f"missed {arm['missed_ticks']} of {arm['steps']} control ticks in {episodes} episodes, load "
        f"{os.getloadavg()[0]:.1f}; the page sent {client.bytes / 1e6:.1f} MB"
    )


def _address(process: subprocess.Popen[bytes]) -> str:
    """Read where a viewer listens, as host and port."""
    assert process.stderr is not None
    said = b""
    while (found := re.search(rb"http://(127\.0\.0\.1:\d+)", said)) is None:
        line = process.stderr.readline()
        if not line:
            raise SystemExit(f"the viewer ended: {said.decode()}")
        said += line
    return found[1].decode()


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has taken [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Train, attach and detach, and print the rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="ur5e_reach")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rehearsal", type=int, metavar="EPISODES", help="watch a rehearsal in place of a training")
    options = parser.parse_args()
    if options.rehearsal:
        watch_rehearsal(options.config, options.rehearsal)
        return
    rates: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        every = ["training.evaluate_every=1000000", "training.checkpoint_every=2000", "training.log_every=50"]
        training = subprocess.Popen(
            [sys.executable, "-m", "td3robot", "train", options.config, "--steps", "1000000", "--out", str(run)]
            + [f"--set={setting}" for setting in every],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not list(run.glob("last-*")):
                if training.poll() is not None:
                    raise SystemExit("the training ended")
                sleep(0.5)
            for number in range(2 * options.rounds):
                watched = number % 2 == 1
                if watched:
                    viewer, client = attach(run)
                    taken = cpu_s(viewer.pid)
                rates[watched].append(rate(run, options.seconds))
                load = os.getloadavg()[0]
                print(
                    f"{'with' if watched else 'without'}: {rates[watched][-1]:.1f} steps/s, load {load:.1f}", flush=True
                )
                if watched:
                    share = (cpu_s(viewer.pid) - taken) / options.seconds
                    print(f"  the page sent {client.bytes / 1e6:.1f} MB, and took {100 * share:.0f} % of a core")
                    client.close()
                    assert viewer.stdin is not None
                    viewer.stdin.close()
                    viewer.wait()
        finally:
            training.terminate()
            training.wait()
    without, beside = median(rates[False]), median(rates[True])
    print(f"median {without:.1f} without, {beside:.1f} with: {100 * (1 - beside / without):+.1f} % less")


if __name__ == "__main__":
    main()
