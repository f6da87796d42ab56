"""Tasks in the form of GoalEnv: what others' checkers and this project's hindsight need of them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from td3robot.errors import ConfigError

IDS = ("td3robot/UR5eReach-v0", "td3robot/UR5ePush-v0")


@pytest.fixture(params=IDS)
def environment(request):
    environment = gymnasium.make(request.param, goal_env=True)
    yield environment
    environment.close()


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
def test_gymnasiums_checker_passes(environment):
    check_env(environment, skip_render_check=True)


def test_rewards_are_those_of_the_goals(environment):
    observation, _ = environment.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32):
        observation, reward, _, _, info = environment.step(action)
        away = np.linalg.norm(observation["achieved_goal"] - observation["desired_goal"])
        assert away == pytest.approx(info["distance_m"], abs=1e-6)
        assert reward == -1.0
    compute, within_m = environment.get_wrapper_attr("compute_reward"), environment.unwrapped.task.config.tolerance_m
    off = np.zeros((3, observation["desired_goal"].size))
    off[:, 0] = 0.0, 0.99 * within_m, 1.01 * within_m
    np.testing.assert_array_equal(
        compute(observation["desired_goal"] + off, observation["desired_goal"], {}), [0, 0, -1]
    )


def test_the_rest_of_the_observation_does_not_depend_on_the_goal(environment):
    goals = [[0.1, 0.5, 0.3], [-0.1, 0.45, 0.25]]
    size = environment.observation_space["desired_goal"].shape[0]
    seen = [environment.reset(seed=1, options={"goal": goal[:size]})[0] for goal in goals]
    np.testing.assert_array_equal(seen[0]["observation"], seen[1]["observation"])
    for each, goal in zip(seen, goals, strict=True):
        np.testing.assert_allclose(each["desired_goal"], goal[:size], atol=1e-6)


def test_tasks_without_a_position_for_a_goal_say_so():
    with pytest.raises(ConfigError, match="goal_env needs a task whose goal is a position"):
        gymnasium.make("td3robot/UR5eGrasp-v1", goal_env=True)
