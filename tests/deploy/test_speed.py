from pathlib import Path

import pytest

from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, load_config
from td3robot.deploy.loaded_policy import scaled
from td3robot.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
CONFIG = load_config(CONFIGS / "ur5e_reach_quick.yaml").environment


def test_at_full_speed_nothing_changes():
    assert scaled(CONFIG, 1.0) == CONFIG


@pytest.mark.parametrize("speed", [0.0, 0.01, -1.0, 1.01, float("nan"), float("inf")])
def test_other_speeds_are_refused(speed):
    with pytest.raises(ConfigError, match=r"--speed .* is outside"):
        scaled(CONFIG, speed)


def test_every_limit_and_the_full_action_scale_and_episodes_stretch():
    slow, fast = scaled(CONFIG, 0.1), CONFIG
    for name in ("max_tcp_speed_m_s", "joint_speed_fraction", "max_joint_acceleration_rad_s2"):
        assert getattr(slow.guard, name) == pytest.approx(0.1 * getattr(fast.guard, name))
    assert slow.episode_steps == 10 * fast.episode_steps
    assert (slow.pace, fast.pace, scaled(slow, 0.5).pace) == (0.1, 1.0, 0.05)
    a, b = make_robot_env(slow), make_robot_env(fast)
    for name, speed in a.action_kind.implied_speeds().items():
        assert speed == pytest.approx(0.1 * b.action_kind.implied_speeds()[name])
    assert a.observation_layout.to_json() == b.observation_layout.to_json()


def test_a_slow_arm_s_environment_counts_the_time_since_a_sighting_at_its_pace():
    hidden = DISTURBANCES["off"].model_copy(update={"camera_hidden_m": (1.0, 1.0), "camera_rate_hz": (20.0, 20.0)})
    config = load_config(CONFIGS / "ur5e_grasp_quick.yaml").environment.model_copy(update={"disturbance": hidden})
    ages = []
    for speed in (1.0, 0.1):
        environment = make_robot_env(scaled(config, speed))
        environment.reset(seed=0)
        for _ in range(20):
            environment.step(environment.action_space.low * 0.0)
        ages.append(environment.seen.ages_s["object"])
        environment.close()
    assert ages[0] > 0.9
    assert ages[1] == pytest.approx(0.1 * ages[0])
