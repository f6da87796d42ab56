"""Several arms for one learner: who plays what, what is stored, and what a fault or a stop ends."""

from pathlib import Path

import numpy as np
import pytest

from td3robot.build import make_robot_env
from td3robot.config import load_config
from td3robot.envs.rows import SingleRows
from td3robot.errors import ConfigError, ContractError, RobotError
from td3robot.learning.arm_trainer import ArmCollector, ArmTrainer, exploring_policy
from td3robot.learning.arms import DROPS, ArmDeclinedError, ArmEpisode, ArmProcess, Arms, EpisodeOrder, Player, Question
from td3robot.learning.environments import EnvironmentFacts, LocalEnvironments
from td3robot.learning.evaluator import Episodes, LocalEvaluator
from td3robot.learning.runs import make_arm_trainer, make_trainer
from td3robot.policy.checkpoint import Checkpoint, find
from td3robot.robots.cells import CellConfig
from td3robot.robots.travel import TravelPlan

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = (
    "environment.episode_s=1",
    "agent.hidden=[8,8]",
    "agent.batch_size=16",
    "agent.replay_capacity=500",
    "agent.updates_per_step=1",
    "agent.n_step=3",
    "training.environments=2",
    "training.random_steps=20",
    "training.steps=40",
    "training.threads=1",
    "training.learner=reference",
    "training.evaluate_every=1000",
    "training.log_every=10",
)


class Listener:
    def __init__(self):
        self.said = []

    def progress(self, step, steps_per_second):
        pass

    def evaluated(self, step, evaluation):
        pass

    def message(self, text):
        self.said.append(text)


class Asking:
    """The parent of an arm's process, as the process sees it."""

    def __init__(self, answers=(), stop_after=None):
        self.answers, self.asked, self.stop_after, self.looks = list(answers), [], stop_after, 0

    @property
    def asked_to_stop(self):
        self.looks += 1
        return self.stop_after is not None and self.looks > self.stop_after

    def say(self, what):
        pass

    def answer(self, what):
        self.asked.append(what)

    def next(self):
        return self.answers.pop(0)


def alone(environment):
    """Return an environment that steps by itself, as an arm's does."""
    environments = LocalEnvironments([environment])
    environments._rows = SingleRows([environment])
    return environments


class SimulatedArms:
    """Arms whose players are in this process, on simulations; some fail at an episode."""

    def __init__(self, config, count, failing=None):
        self.parents = [Asking() for _ in range(count)]
        self.players = [
            Player(parent, str(index), alone(make_robot_env(config.environment)))
            for index, parent in enumerate(self.parents)
        ]
        facts = self.players[0].environments.facts
        self.facts = EnvironmentFacts(count, facts.action_shape, facts.observation_layout)
        self.processes = dict(enumerate(self.players))
        self.failing, self.orders, self.stopped, self.ended = failing or {}, [], False, []

    def play(self, orders):
        self.orders.append(orders)
        played = {}
        for index, order in orders.items():
            episode = self.players[index].play(order)
            if self.failing.get(index) == len(self.orders):
                episode = ArmEpisode(episode.observation, episode.steps[:5], RobotError("the arm is stuck"))
                self.ended.append((str(index), episode.fault))
                del self.processes[index]
            played[index] = episode
        return played

    def stop(self):
        self.stopped = True

    def close(self):
        pass


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    trainer = make_trainer(load_config(CONFIGS / "ur5e_reach_quick.yaml", SMALL), run, Listener())
    trainer.train()
    trainer.close()
    return Checkpoint(find(run, ("last",)))


def trainer_on(saved, arms, steps, run):
    config = saved.config([f"training.steps={steps}"])
    simulated = make_robot_env(config.environment)
    trainer = ArmTrainer(
        config,
        ArmCollector(arms, config),
        LocalEvaluator(Episodes([simulated], 0), 1),
        simulated.contract(),
        run,
        Listener(),
    )
    trainer.resume(saved)
    return trainer


def test_arms_play_side_by_side_and_share_what_is_left(saved, tmp_path):
    arms = SimulatedArms(saved.config(), 2)
    trainer = trainer_on(saved, arms, 40 + 40 + 7, tmp_path / "on")
    trainer.train()
    limits = [{index: order.limit for index, order in orders.items()} for orders in arms.orders]
    assert limits == [{0: 24, 1: 23}, {0: 4, 1: 3}]
    one, other = arms.orders[0].values()
    assert one.number == other.number == max(saved.document("counters")["episodes"]) + 1
    assert one.seed != other.seed
    assert trainer.step == 87
    assert trainer.replay.size == 87 - 2 * 2  # the last two steps of what was broken off wait for a third for ever
    assert trainer.agent.updates == 87 - 20


def test_what_is_stored_is_what_was_played(saved, tmp_path):
    arms = SimulatedArms(saved.config(), 2)
    trainer = trainer_on(saved, arms, 80, tmp_path / "on")
    trainer.config = saved.config(["training.steps=80"])
    before = trainer.replay.size
    played = trainer.collector.play(exploring_policy(trainer.agent, trainer.contract), 40)
    for taken in trainer.collector.taken(played):
        trainer.replay.add(taken.transitions)
    gamma = trainer.config.agent.gamma
    expected = []
    for part in played.values():
        observations = [part.observation, *(step.observation for step in part.steps)]
        for number, step in enumerate(part.steps):
            last = min(number + 3, len(part.steps))
            reward = sum(gamma**ahead * each.reward for ahead, each in enumerate(part.steps[number:last]))
            expected.append(
                [*observations[number], *step.action, reward, *observations[last], 0, gamma ** (last - number)]
            )
    assert len(expected) == 40
    np.testing.assert_allclose(trainer.replay.rows[before : trainer.replay.size], expected, rtol=1e-5)


def test_the_same_round_again_plays_the_same(saved, tmp_path):
    rounds = []
    for name in ("one", "other"):
        trainer = trainer_on(saved, SimulatedArms(saved.config(), 2), 80, tmp_path / name)
        rounds.append(trainer.collector.play(exploring_policy(trainer.agent, trainer.contract), 40))
    for one, other in zip(rounds[0].values(), rounds[1].values(), strict=True):
        np.testing.assert_array_equal(
            [step.observation for step in one.steps], [step.observation for step in other.steps]
        )
    one, other = rounds[0].values()
    assert not np.array_equal(one.steps[0].action, other.steps[0].action)


def test_a_fault_of_one_arm_leaves_the_others_to_go_on(saved, tmp_path):
    arms = SimulatedArms(saved.config(), 2, failing={0: 1})
    trainer = trainer_on(saved, arms, 40 + 65, tmp_path / "on")
    trainer.train()
    assert [list(orders) for orders in arms.orders] == [[0, 1], [1], [1]]
    assert trainer.step == 105
    assert trainer.replay.size == 105 - 2  # of the five steps before the fault, two wait for a third for ever


def test_the_fault_of_the_last_arm_ends_the_training_and_it_is_saved(saved, tmp_path):
    arms = SimulatedArms(saved.config(), 2, failing={0: 2, 1: 1})
    trainer = trainer_on(saved, arms, 1000, tmp_path / "on")
    with pytest.raises(RobotError, match="the arm is stuck"):
        trainer.train()
    assert Checkpoint(find(tmp_path / "on", ("last",))).document("counters")["step"] == 40 + 20 + 5 + 5


def test_a_stop_reaches_the_arms(saved, tmp_path):
    trainer = trainer_on(saved, arms := SimulatedArms(saved.config(), 1), 1000, tmp_path / "on")
    trainer.request_stop()
    assert arms.stopped
    trainer.train()
    assert arms.orders == []


def order(saved, **changes):
    arms = SimulatedArms(saved.config(), 1)
    collector = ArmCollector(arms, saved.config())
    collector.begin_after(0)
    arms.play = lambda orders: orders
    made = collector.play(saved.policy(), 20)[0]
    return EpisodeOrder(*(changes.get(name, getattr(made, name)) for name in made.__slots__))


def test_an_episode_that_is_broken_off_brings_what_it_has(saved):
    environment = make_robot_env(saved.config().environment)
    stops = []
    environment.robot.stop = lambda stop=environment.robot.stop: (stops.append(1), stop())
    player = Player(Asking(stop_after=7), "left", alone(environment))
    episode = player.play(order(saved))
    assert (len(episode.steps), episode.fault) == (7, None)
    assert stops


def test_a_fault_brings_the_steps_before_it(saved):
    environment = make_robot_env(saved.config().environment)
    player = Player(Asking(), "left", alone(environment))
    sent = []

    def send(command, send=environment.robot.send):
        sent.append(command)
        if len(sent) == 5:
            raise RobotError("the arm is stuck")
        return send(command)

    environment.robot.send = send
    episode = player.play(order(saved))
    assert len(episode.steps) == 4
    assert str(episode.fault) == "the arm is stuck"


@pytest.mark.parametrize("agreed", [True, False])
def test_whoever_minds_the_arm_is_asked_before_it_drops_something(saved, agreed):
    parent = Asking([agreed])
    player = Player(parent, "left", alone(make_robot_env(saved.config().environment)))

    class Plan:
        drops = True

    if agreed:
        player.agree(Plan())
    else:
        with pytest.raises(ArmDeclinedError, match="nobody took it"):
            player.agree(Plan())
    assert parent.asked == [Question(DROPS)]
    Plan.drops = False
    player.agree(Plan())
    assert len(parent.asked) == 1


def test_a_fault_that_is_found_while_the_arm_comes_to_rest_is_one_of_the_episode(saved):
    environment = make_robot_env(saved.config().environment)
    player = Player(Asking(stop_after=3), "left", alone(environment))
    assert player.fault() is None

    class Latched(type(environment.robot)):
        fault = "the arm did not come to rest in time"

    environment.robot.stop = lambda: setattr(environment.robot, "__class__", Latched)
    episode = player.play(order(saved))
    assert len(episode.steps) == 3
    assert str(episode.fault) == str(player.fault()) == "the arm did not come to rest in time"


def test_whoever_agrees_after_the_stop_moves_nothing(saved):
    parent = Asking([True], stop_after=1)
    player = Player(parent, "left", alone(make_robot_env(saved.config().environment)))
    plan = TravelPlan(np.zeros(6), np.zeros(6), (), np.zeros((0, 3)), 0.0, opens_gripper=True, drops=True)
    player._environment.travel.agree = player.agree
    player._environment.reset = lambda seed=None: player.agree(plan)
    episode = player.play(order(saved))
    assert (episode.observation, episode.steps, episode.fault) == (None, [], None)
    assert parent.asked == [Question(DROPS)]


def test_the_process_of_an_arm_that_cannot_be_reached_says_so(saved):
    cell = CellConfig.model_validate({"ur": {"host": "127.99.0.1", "connect_timeout_s": 1.0}})
    process = ArmProcess("left", saved.config().environment, cell, 60.0)
    arms = Arms([process], lambda name, what: False)
    ended = []
    arms.on_fault = lambda index, fault: ended.append((index, str(fault)))
    try:
        assert process.contract.observation.size == 20
        played = arms.play({0: order(saved)})
    finally:
        arms.close()
    assert played[0].observation is None
    assert "127.99.0.1" in str(played[0].fault)
    assert ended == [(0, str(played[0].fault))]
    assert arms.processes == {}


def test_a_killed_process_is_a_fault_of_its_arm(saved):
    cell = CellConfig.model_validate({"ur": {"host": "127.99.0.1"}})
    process = ArmProcess("left", saved.config().environment, cell, 60.0)
    arms = Arms([process], lambda name, what: False)
    process._child.kill()
    played = arms.play({0: order(saved)})
    assert "the process of arm left ended with status -9" in str(played[0].fault)


def test_every_cell_has_to_be_what_the_run_was_trained_for(saved, tmp_path):
    cells = {
        name: CellConfig.model_validate(
            {"robot": {"backend": "ur", "control_rate_hz": rate}, "ur": {"host": f"127.99.0.{number}"}}
        )
        for number, (name, rate) in enumerate([("left", 20.0), ("right", 25.0)], 1)
    }
    with pytest.raises(ContractError, match=r"control_rate_hz: 25, wanted 20; .*; the cell right is not what"):
        make_arm_trainer(saved.config(), tmp_path, Listener(), cells, lambda name, what: True)


def test_a_run_on_another_environment_has_no_arm(tmp_path):
    config = load_config(CONFIGS / "gym_pendulum.yaml", [])
    with pytest.raises(ConfigError, match="there is no arm for that"):
        make_arm_trainer(config, tmp_path, Listener(), {}, lambda name, what: True)
