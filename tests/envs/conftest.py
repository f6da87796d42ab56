"""What the tests of environments share."""

import pytest

from td3robot.build import make_robot_env


@pytest.fixture
def begun():
    """Give what makes an environment of a configuration, in an episode of seed 0; all are closed at the end."""
    made = []

    def begin(config):
        made.append(make_robot_env(config))
        made[-1].reset(seed=0)
        return made[-1]

    yield begin
    for environment in made:
        environment.close()
