"""Whole trainings, from nothing: minutes each, so they run only with ``-m slow``."""

from pathlib import Path

import pytest

from td3robot.build import make_environment
from td3robot.config import load_config
from td3robot.envs.playing import evaluate
from td3robot.learning.runs import make_trainer
from td3robot.policy.checkpoint import load_policy

CONFIGS = Path(__file__).parent.parent / "configs"


class Silent:
    def progress(self, step, steps_per_second):
        pass

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        raise AssertionError(text)


def trained(name, run):
    config = load_config(CONFIGS / f"{name}.yaml")
    make_trainer(config, run, Silent()).train()
    return evaluate(make_environment(config.environment), load_policy(run).act, episodes=100, seed=12345)


@pytest.mark.slow
def test_the_arm_learns_to_reach(tmp_path):
    figures = trained("ur5e_reach_quick", tmp_path)
    assert figures.success_rate >= 0.97
    assert figures.max_tcp_speed_m_s <= 0.25
    elsewhere = load_config(CONFIGS / "ur5e_reach_quick.yaml", ["environment.robot.backend=kinematic"]).environment
    assert evaluate(make_environment(elsewhere), load_policy(tmp_path).act, episodes=100, seed=1).success_rate >= 0.95


@pytest.mark.slow
def test_the_pendulum_is_solved(tmp_path):
    assert trained("gym_pendulum", tmp_path).mean_return > -200.0
