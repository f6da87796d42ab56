import re

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import td3robot  # noqa: F401  # registers the environment
from td3robot.build import make_robot_env
from td3robot.config import ActionConfig, Box, GuardConfig, RobotConfig, RobotEnvironmentConfig
from td3robot.errors import ConfigError, EnvironmentFaultError
from td3robot.tasks.reach import ReachConfig

CONFIG = RobotEnvironmentConfig()


@pytest.fixture(scope="module")
def environment():
    environment = make_robot_env(CONFIG)
    yield environment
    environment.close()


@pytest.fixture(scope="module")
def other():
    environment = make_robot_env(CONFIG)
    yield environment
    environment.close()


def random_actions(environment, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *environment.action_space.shape)).astype(np.float32)


def rollout(environment, seed, actions):
    """Return every observation of an episode, every reward, and every info."""
    observation, _ = environment.reset(seed=seed)
    observations, rewards, infos = [observation], [], []
    for action in actions:
        observation, reward, _, _, info = environment.step(action)
        observations.append(observation)
        rewards.append(reward)
        infos.append(info)
    return np.array(observations), np.array(rewards), infos


def proportional(environment, observation):
    """Move the commanded tool point straight at the goal."""
    seen = environment.observation_layout.unpack(observation)
    return np.clip(40.0 * (seen["goal_from_tcp"] - seen["commanded_from_tcp"]), -1.0, 1.0)


@pytest.mark.filterwarnings("ignore:.*Box observation space m[a-z]+imum value is -?infinity.*")
def test_gymnasium_finds_nothing_to_object():
    environment = gymnasium.make("td3robot/UR5eReach-v0")
    check_env(environment.unwrapped, skip_render_check=True)
    environment.close()


@pytest.mark.parametrize("backend", ["mujoco", "kinematic"])
@pytest.mark.parametrize("kind", ["tcp_delta", "joint_delta"])
def test_every_backend_and_action_kind_runs_an_episode(backend, kind):
    config = RobotEnvironmentConfig(robot=RobotConfig(backend=backend), action=ActionConfig(kind=kind), episode_s=1.0)
    environment = make_robot_env(config)
    size = {"tcp_delta": 3, "joint_delta": 6}[kind]
    assert environment.action_space.shape == (size,)
    observations, rewards, infos = rollout(environment, 0, random_actions(environment, 20))
    assert np.isfinite(observations).all() and np.isfinite(rewards).all()
    assert np.ptp(observations[:, :6], axis=0).max() > 1e-3
    assert max(info["tcp_speed_m_s"] for info in infos) <= CONFIG.guard.max_tcp_speed_m_s * 1.01
    environment.close()


def test_backends_share_one_contract():
    contracts = [
        make_robot_env(RobotEnvironmentConfig(robot=RobotConfig(backend=backend))).contract()
        for backend in ("mujoco", "kinematic")
    ]
    assert list(contracts[0].differences(contracts[1])) == []


def test_seed_and_actions_decide_everything(environment, other):
    actions = random_actions(environment, 60)
    observations, rewards, infos = rollout(environment, 7, actions)
    rollout(other, 1, random_actions(other, 35, seed=1))
    rollout(other, 2, random_actions(other, 10, seed=2))
    for again in (other, environment):
        observations_again, rewards_again, infos_again = rollout(again, 7, actions)
        np.testing.assert_array_equal(observations_again, observations)
        np.testing.assert_array_equal(rewards_again, rewards)
        assert infos_again == infos


def test_another_seed_is_another_episode(environment):
    first, second = (environment.reset(seed=seed)[0] for seed in (1, 2))
    assert not np.array_equal(first, second)


def test_an_episode_starts_at_rest_where_the_task_says(environment):
    for seed in range(10):
        environment.reset(seed=seed)
        world = environment.world
        np.testing.assert_allclose(world.tcp.position, environment.goal.start, rtol=0, atol=5e-5)
        np.testing.assert_array_equal(world.commanded.q, world.robot.q)
        np.testing.assert_allclose(world.tcp_velocity, 0.0, atol=1e-9)


@pytest.mark.parametrize(
    "action",
    [[np.nan, 0, 0], [0, np.inf, 0], [0, 0, -np.inf], [0, 0], [0, 0, 0, 0], [[0, 0, 0]], 0.0],
    ids=["nan", "inf", "-inf", "short", "long", "nested", "scalar"],
)
def test_bad_actions_are_refused_and_nothing_is_sent(environment, monkeypatch, action):
    environment.reset(seed=0)
    sent, send = [], environment.robot.send
    monkeypatch.setattr(environment.robot, "send", lambda command: sent.append(command) or send(command))
    commanded, stamp = environment.guard.commanded.q, environment.robot.now()
    with pytest.raises(EnvironmentFaultError, match=r"3 finite numbers in \[-1, 1\]; nothing was sent"):
        environment.step(np.array(action, dtype=np.float32))
    assert sent == []
    np.testing.assert_array_equal(environment.guard.commanded.q, commanded)
    assert environment.robot.now() == stamp
    environment.step(np.zeros(3, np.float32))
    assert len(sent) == 1


def test_a_preview_is_what_the_next_step_sends_and_changes_nothing(environment, other):
    environment.reset(seed=3)
    other.reset(seed=3)
    before = [guard.interventions.copy() for guard in (environment.guard, other.guard)]
    for action in random_actions(environment, 20):
        decision = environment.preview(action)
        environment.preview(-action)
        one, two = environment.step(action), other.step(action)
        np.testing.assert_array_equal(decision.command.q, environment.guard.commanded.q)
        assert decision.reasons == one[4]["interventions"]
        np.testing.assert_array_equal(one[0], two[0])
    assert environment.guard.interventions - before[0] == other.guard.interventions - before[1]
    with pytest.raises(EnvironmentFaultError, match="nothing was sent"):
        environment.preview(np.full(environment.action_space.shape, np.nan))


def test_actions_beyond_one_are_cut_to_one(environment):
    far = rollout(environment, 3, [np.array([50.0, -50.0, 50.0], np.float32)] * 5)[0]
    full = rollout(environment, 3, [np.array([1.0, -1.0, 1.0], np.float32)] * 5)[0]
    np.testing.assert_array_equal(far, full)


def test_episodes_end_by_truncation_alone(environment):
    observation, _ = environment.reset(seed=0)
    for step in range(1, CONFIG.episode_steps + 1):
        observation, _, terminated, truncated, _ = environment.step(proportional(environment, observation))
        assert not terminated
        assert truncated == (step == CONFIG.episode_steps)


def test_info_says_what_it_promises(environment):
    _, rewards, infos = rollout(environment, 0, random_actions(environment, 10))
    for reward, info in zip(rewards, infos, strict=True):
        assert sum(info["reward_terms"].values()) == pytest.approx(reward)
        assert isinstance(info["interventions"], tuple)
        assert isinstance(info["success"], bool)
        assert info["distance_m"] >= 0.0
        assert info["joint_speed_rad_s"] >= 0.0


def test_success_needs_the_goal_to_be_held(environment):
    observation, _ = environment.reset(seed=0)
    hold, achieved_in_a_row, successes = environment.task.hold_steps, 0, []
    for _ in range(CONFIG.episode_steps):
        observation, _, _, _, info = environment.step(proportional(environment, observation))
        speed_ok = info["tcp_speed_m_s"] <= CONFIG.task.settle_speed_m_s
        achieved_in_a_row = achieved_in_a_row + 1 if speed_ok and info["distance_m"] <= CONFIG.task.tolerance_m else 0
        successes.append(info["success"])
        assert info["success"] == (achieved_in_a_row >= hold)
    first = successes.index(True)
    assert first >= hold - 1
    # Driving off again takes the success back.
    for _ in range(5):
        *_, info = environment.step(np.array([0.0, 1.0, 0.0], np.float32))
    assert not info["success"]


def test_a_scripted_controller_reaches_every_goal(environment):
    reached = 0
    for seed in range(10):
        observation, _ = environment.reset(seed=seed)
        for _ in range(CONFIG.episode_steps):
            observation, _, _, _, info = environment.step(proportional(environment, observation))
        reached += info["success"]
    assert reached == 10


@pytest.mark.parametrize(
    ("low", "high"),
    [((-0.55, 0.2, 0.05), (0.55, 0.94, 0.78)), ((-0.1, 0.16, 0.021), (0.1, 0.3, 0.1))],
    ids=["too far", "too near"],
)
def test_goals_out_of_reach_are_refused_with_a_point_of_the_box(low, high):
    config = RobotEnvironmentConfig(task=ReachConfig(goals=Box(low=low, high=high)))
    with pytest.raises(ConfigError, match=r"cannot reach .*move or shrink the box") as error:
        make_robot_env(config)
    named = re.search(r"task\.goals holds \((.*?), (.*?), (.*?)\) m", str(error.value))
    point = np.array([float(number) for number in named.groups()])
    assert (point >= np.array(low) - 1e-3).all() and (point <= np.array(high) + 1e-3).all()


def test_goals_that_the_guard_forbids_are_refused_with_its_limit():
    config = RobotEnvironmentConfig(guard=GuardConfig(clearance_m=0.2))
    with pytest.raises(ConfigError, match="the guard's limit: clearance"):
        make_robot_env(config)


def test_the_robot_is_not_opened_before_the_first_reset():
    environment = make_robot_env(CONFIG)
    assert environment.robot.model is None
    environment.close()
    environment.close()


def test_the_guard_stands_in_front_of_a_full_action(environment):
    rollout(environment, 0, [np.array([0.0, -1.0, 0.0], np.float32)] * 80)
    low = np.array(CONFIG.guard.workspace.low)
    assert (environment.world.commanded_tcp.position >= low).all()


def test_stable_baselines_trains_on_it_unchanged():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import TD3

    environment = gymnasium.make("td3robot/UR5eReach-v0")
    model = TD3("MlpPolicy", environment, learning_starts=100, batch_size=32, policy_kwargs={"net_arch": [32]}, seed=0)
    model.learn(150)
    assert model.num_timesteps >= 150
    action, _ = model.predict(environment.reset(seed=0)[0])
    assert environment.action_space.contains(action)
    environment.close()
