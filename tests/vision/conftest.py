import numpy as np
import pytest

from td3robot.config import RobotConfig
from td3robot.errors import ConfigError
from td3robot.robots.interface import robot_spec
from td3robot.simulators.camera import SimulatedCamera
from td3robot.state import ObjectModel
from td3robot.vision.camera import looking_at, pinhole
from td3robot.vision.tags import Tags

CUBE = ObjectModel("object", "box", (0.04, 0.04, 0.04), 0.1, 0.7)
PLACE = looking_at(np.array([0.5, 1.2, 0.8]), np.array([0.0, 0.45, 0.0]))


@pytest.fixture(scope="session")
def spec():
    return robot_spec(RobotConfig())


@pytest.fixture
def lens():
    """A small camera that sees the cube as large as a 1280x720 one of 42 degrees does."""
    return pinhole(640, 480, np.radians(28.0), PLACE)


@pytest.fixture(scope="session")
def simulated(spec):
    """Return simulated cameras, each made once, or skip where nothing can be drawn."""
    made = {}

    def make(camera, objects=(CUBE,), tags=None, **printed):
        key = camera.model_dump_json(), objects, (tags or Tags()).model_dump_json(), tuple(printed)
        if key not in made:
            try:
                made[key] = SimulatedCamera(spec, objects, tags or Tags(), camera)
            except ConfigError as error:
                pytest.skip(str(error))
        return made[key]

    yield make
    for each in made.values():
        each.close()
