"""The process of a simulated camera: it draws what the simulated arm does, and sends the frames as a camera does.

It learns the truth from the stand-in's lab. Whoever sees through it gets frames alone.
"""

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import numpy as np

from td3robot.errors import CameraError, RobotError, Td3RobotError
from td3robot.geometry import rotation_of
from td3robot.ports import LOOPBACK, free_port
from td3robot.processes import ONE_THREAD, ChannelClosedError, ChildProcess, Parent, give_way
from td3robot.simulators.arm import own_parameters, true_spec
from td3robot.simulators.cell_camera import Eyes, calibrated, save_files, tags_of, true_camera
from td3robot.simulators.process import LabClient
from td3robot.simulators.settings import ControllerConfig
from td3robot.state import Array, Pose
from td3robot.vision.camera import Camera
from td3robot.vision.tags import Tags

# Meshes are drawn this coarsely, and each pixel from one sample: what software draws in a third of a period [m].
DETAIL_M, SAMPLES = 0.004, 1
START_TIMEOUT_S, ANSWER_TIMEOUT_S = 30.0, 5.0
# How many periods a frame may take to be looked at, and its pose to arrive.
SETTLING_FRAMES = 4
# Threads of the software renderer: one leaves a core to the arm's controller.
VARIABLES = ONE_THREAD | {"LP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Shot:
    """One frame.

    Attributes:
        exposed_at: Unix time of its exposure [s].
        late_s: By how much it left later than it should have.
        positions_m: True positions (3,) of the objects in the base frame, by name.
    """

    exposed_at: float
    late_s: float
    positions_m: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Film:
    """What a camera films: a simulated controller's cell, with these tags, through this lens, with this noise."""

    controller: ControllerConfig
    camera: Camera
    tags: Tags
    seed: int


class CellCamera:
    """A camera that films a stand-in's cell, as a process that ends with this one.

    Args:
        eyes: Where its files go, and what it looks at.
        controller: The stand-in's settings.

    Raises:
        CameraError: It did not start.
        ConfigError: An object has no faces for tags.

    Attributes:
        camera: The true one.
        url: Where its frames are.
        page_port: A free port, for a page with what is found in the frames.
        files: The files of the camera, as a calibration finds it, and of the tags.
    """

    def __init__(self, eyes: Eyes, controller: ControllerConfig) -> None:
        tags = tags_of(controller.object_models())
        self.camera = true_camera(eyes.patch, controller.robot.table_height_m)
        self.files: tuple[Path, Path] = save_files(eyes.folder, calibrated(self.camera, eyes.seed), tags)
        self.page_port = free_port(LOOPBACK, None)
        self._child = ChildProcess(film, variables=VARIABLES)
        self._child.channel.send(Film(controller, self.camera, tags, eyes.seed))
        try:
            self.url = str(self._answer(START_TIMEOUT_S))
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        camera = self.camera
        return (
            f"camera: {camera.width}x{camera.height}, {camera.rate_hz:g} frames a second, "
            f"{1e3 * camera.latency_s:g} ms from exposure to frame"
        )

    def to_json(self) -> dict[str, float]:
        """Return its size [pixels], rate [Hz] and latency [s]."""
        camera = self.camera
        return {name: getattr(camera, name) for name in ("width", "height", "rate_hz", "latency_s")}

    @property
    def settled_s(self) -> float:
        """Time after which no pose from before an object was moved arrives any more [s]."""
        return self.camera.latency_s + SETTLING_FRAMES / self.camera.rate_hz

    def shots(self) -> list[Shot]:
        """Return every frame so far.

        Raises:
            CameraError: It failed.
        """
        with suppress(ChannelClosedError):  # it may have said why
            self._child.channel.send("shots")
        found: list[Shot] = self._answer(ANSWER_TIMEOUT_S)
        return found

    def close(self) -> None:
        """End it. May be repeated."""
        self._child.close()

    def _answer(self, timeout_s: float) -> Any:
        channel = self._child.channel
        try:
            if not channel.poll(timeout_s):
                raise CameraError(
                    f"the simulated camera did not answer within {timeout_s:g} s; is the computer too busy?"
                )
            answer = channel.receive()
        except ChannelClosedError:
            raise CameraError("the simulated camera's process ended; its last lines are above") from None
        if isinstance(answer, Td3RobotError):
            raise CameraError(f"the simulated camera failed: {answer}")
        return answer


def film(parent: Parent) -> None:
    """Film for a parent process: tell it the address of the frames, and all shots when it asks."""
    from td3robot.vision.show import LivePage

    settings = parent.next()
    if settings is None:
        return
    give_way()
    try:
        with closing(LivePage()) as page, closing(_Filming(settings)) as filming:
            filming.shoot(page)
            parent.answer(page.url)
            while not parent.is_gone:
                filming.shoot(page)
                while parent.channel.poll():
                    parent.channel.receive()
                    parent.answer(filming.shots)
    except Td3RobotError as error:
        parent.answer(error)
    except ChannelClosedError:
        pass


class _Filming:
    """Draws a cell frame by frame, each at its time."""

    def __init__(self, settings: Film) -> None:
        import cv2

        from td3robot.simulators.camera import Look, SimulatedCamera

        cv2.setNumThreads(1)
        controller = settings.controller
        self._camera, self._pose = settings.camera, settings.camera.pose
        nominal = controller.spec()
        parameters = own_parameters(nominal.arm, controller.calibration)
        robot, objects = true_spec(nominal, parameters, controller.cell_model.tool), controller.object_models()
        self._drawing = SimulatedCamera(robot, objects, settings.tags, settings.camera, SAMPLES, DETAIL_M)
        self._look, self._rng = Look(), np.random.default_rng(settings.seed)
        self._lab = LabClient(controller.host, controller.lab_port)
        if self._lab.ask(state=True)["token"] != controller.token:
            raise RobotError(f"the controller on {controller.host} is not the one that was started")
        self.shots: list[Shot] = []
        self._due = monotonic()

    def shoot(self, page: Any) -> None:
        """Wait for the next exposure, draw it, and show it when a real camera would have."""
        self._due = max(self._due + 1.0 / self._camera.rate_hz, monotonic())
        sleep(max(0.0, self._due - monotonic()))
        begun, exposed_at = monotonic(), time()
        state = self._lab.ask(state=True)
        asked_s = monotonic() - begun
        objects = {name: _pose(value) for name, value in state["objects"].items()}
        fingers = np.full(2, float(state["gripper"]["driver_q"]))
        assert self._pose is not None
        sharp = self._drawing.draw(np.array(state["q"]), fingers, objects, self._pose.pose)
        image = self._look.apply(sharp, self._rng)
        left_s = begun + asked_s / 2 + self._camera.latency_s - monotonic()
        sleep(max(0.0, left_s))
        page.show(image)
        positions = {name: pose.position for name, pose in objects.items()}
        self.shots.append(Shot(exposed_at + asked_s / 2, max(0.0, -left_s), positions))

    def close(self) -> None:
        """Release what it draws with."""
        self._drawing.close()
        self._lab.close()


def _pose(value: dict[str, Any]) -> Pose:
    return Pose(np.array(value["position_m"]), rotation_of(value["quaternion_wxyz"]))
