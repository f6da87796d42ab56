"""What several tests need: a robot's geometry, and small runs of a quick environment."""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import numpy as np
import pytest
import torch
from quiet import Quiet
from stalls import in_real_time, pytest_runtest_protocol  # noqa: F401

from td3robot import cli
from td3robot.build import robot_spec
from td3robot.config import GuardConfig, RobotConfig, RunConfig, load_config
from td3robot.errors import MissingExtraError
from td3robot.learning.runs import make_trainer
from td3robot.learning.trainer import Trainer
from td3robot.robots.interface import RobotSpec
from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.mujoco import MujocoRobot

torch.set_num_threads(1)
# A shell that runs the tests in the background has them ignore these, and so would the commands that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup

PENDULUM = Path(__file__).parents[1] / "configs" / "gym_pendulum.yaml"
SMALL = (
    "agent.hidden=[8,8]",
    "agent.batch_size=16",
    "agent.replay_capacity=500",
    "training.steps=60",
    "training.random_steps=20",
    "training.threads=1",
    "training.learner=reference",
    "training.evaluate_every=40",
    "training.evaluation_episodes=1",
    "training.checkpoint_every=20",
    "training.log_every=20",
)

# What the tests ended with, and how long the threads they left may take to end [s].
STATUS = [1]
HELD_S = 10.0


class Closable(Protocol):
    """What is closed at the end; may be repeated."""

    def close(self) -> None:
        """Close it."""


# More examples where all tests run.
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=100, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples in a run without thorough tests."""
    hypothesis.settings.load_profile("quick" if "not thorough" in config.option.markexpr else "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test's cases, leave those that ``@pytest.mark.quick("case", ...)`` does not name to the thorough run.

    Tests in real time come first: one process begins with them, and takes others afterwards.
    """
    items.sort(key=lambda item: not in_real_time(item.nodeid))
    named = {test for test in items if (mark := test.get_closest_marker("quick")) and test.callspec.id in mark.args}
    tests = {test.nodeid.partition("[")[0] for test in named}
    for test in items:
        if test not in named and test.get_closest_marker("quick") and test.nodeid.partition("[")[0] in tests:
            test.add_marker("thorough")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one process, and all tests in real time in one.

    ``--dist loadgroup`` does not: pytest-xdist 3.8 groups nothing with pytest 9.2, and is silent about it. Two
    controllers and two drivers at real-time priority would leave two cores to nobody else for most of a second.
    """
    config.option.loadscopereorder = False
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "in real time" if in_real_time(nodeid) else super()._split_scope(nodeid)

    return Together(config, log)


# Stand-ins that run, with the folder whose tests need them.
RUNNING: list[tuple[Path, Closable]] = []


@pytest.fixture(scope="session")
def ends_with() -> Callable[[Path, Closable], None]:
    """Have a stand-in end with the last test of a folder: it takes a fifth of a core from all that follow."""
    return lambda folder, standin: RUNNING.append((folder, standin))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End what no further test of its folder needs."""
    for each in list(RUNNING):
        folder, standin = each
        if nextitem is None or folder not in nextitem.path.parents:
            RUNNING.remove(each)
            standin.close()


def host_of_this_process(number: int) -> str:
    """Give a loopback address that no other test process uses."""
    pid = os.getpid()
    return f"127.{31 + number}.{pid // 250 % 250}.{1 + pid % 250}"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the ledger of each test to itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def hosts() -> tuple[str, ...]:
    """Give loopback addresses for stand-ins: of the robots' tests, the environments', one test alone, and a Franka."""
    return tuple(host_of_this_process(number) for number in range(4))


@pytest.fixture(scope="session")
def spec() -> RobotSpec:
    return robot_spec(RobotConfig())


@pytest.fixture(scope="module")
def robot(spec: RobotSpec) -> Iterator[MujocoRobot]:
    robot = MujocoRobot(spec, physics_rate_hz=400.0)
    robot.connect()
    yield robot
    robot.close()


@pytest.fixture(scope="session")
def kinematics(spec: RobotSpec) -> Kinematics:
    return Kinematics(spec, GuardConfig().clearance_m)


@pytest.fixture
def small() -> tuple[str, ...]:
    """Overrides that make a run of configs/gym_pendulum.yaml last a moment."""
    return SMALL


@pytest.fixture
def td3robot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process, and give status, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["td3robot", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    return run


@pytest.fixture
def set_small(small: tuple[str, ...]) -> list[str]:
    return [f"--set={override}" for override in small]


@pytest.fixture
def pendulum_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """Make the trainer of a small pendulum run in ``tmp_path / "run"``; its listener is a :class:`Quiet`."""

    def make(overrides: Iterable[str] = ()) -> Trainer:
        config: RunConfig = load_config(PENDULUM, [*SMALL, *overrides])
        return make_trainer(config, tmp_path / "run", Quiet())

    return make


@pytest.fixture
def untrained(pendulum_trainer: Callable[..., Trainer]) -> Path:
    """Save a resumable checkpoint of random networks, whose normaliser has seen something."""
    trainer = pendulum_trainer(["agent.normalize_observations=true"])
    trainer.agent.normalizer.update(np.random.default_rng(1).normal(3.0, 2.0, (50, 3)))
    trainer.save()
    return trainer.run_directory / "last-000000000"


@pytest.fixture
def sign() -> Callable[[Path, str], None]:
    """Make a checkpoint's manifest agree with a file of it that was changed."""

    def sign(path: Path, name: str) -> None:
        manifest, content = path / "manifest.json", (path / name).read_bytes()
        values = json.loads(manifest.read_text())
        values["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        manifest.write_text(json.dumps(values))

    return sign


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of a finished small pendulum run; tests leave it as it is."""
    run = tmp_path_factory.mktemp("runs") / "made"
    make_trainer(load_config(PENDULUM, SMALL), run, Quiet()).train()
    return run


def skip_without_franka() -> Iterator[object]:
    """Skip what needs the FR3's model, with the sentence that says how to get it; the wheel is 400 MB."""
    try:
        return (yield)
    except MissingExtraError as error:
        if error.extra != "franka" or find_spec("franky_sim") is not None:
            raise
        pytest.skip(str(error))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Name the threads that would keep the interpreter from ending, and end it without them."""
    held = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    for thread in held:
        thread.join(HELD_S)
    held = [thread for thread in held if thread.is_alive()]
    if held:
        names = ", ".join(thread.name for thread in held)
        sys.stderr.write(f"threads that the tests left, and that do not end: {names}\n")
        faulthandler.dump_traceback()
        sys.stdout.flush()
        os._exit(STATUS[0])


def pytest_sessionfinish(exitstatus: int) -> None:
    """Keep the status for the end."""
    STATUS[:] = [int(exitstatus)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[object]:
    return (yield from skip_without_franka())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[object]:
    return (yield from skip_without_franka())
