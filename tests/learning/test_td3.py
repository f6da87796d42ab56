"""The TD3 update, against numbers worked out in plain NumPy and against the laws of the paper."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from td3robot.errors import CheckpointError
from td3robot.learning.agents.td3 import TD3Config
from td3robot.learning.replay import Batch
from td3robot.learning.td3 import NETWORKS, TD3

OBSERVATION, ACTION, ROWS = 3, 2, 16
LEARNING_RATE, TAU, BETA1, BETA2, EPSILON = 1e-3, 0.1, 0.9, 0.999, 1e-8

Weights = list[np.ndarray]  # W1 (hidden, in), b1, W2 (out, hidden), b2


def make_agent(seed: int = 0, **changes) -> TD3:
    values = {
        "hidden": (8,), "learning_rate": LEARNING_RATE, "tau": TAU, "policy_noise": 0.0, "device": "cpu",
    }  # fmt: skip
    return TD3(OBSERVATION, ACTION, TD3Config(**(values | changes)), seed)


def make_batch(seed: int = 0, terminated: float | None = None) -> Batch:
    rng = np.random.default_rng(seed)
    ends = rng.uniform(size=(ROWS, 1)) < 0.3 if terminated is None else np.full((ROWS, 1), terminated)
    columns = (
        rng.normal(size=(ROWS, OBSERVATION)), rng.uniform(-1, 1, (ROWS, ACTION)), rng.normal(size=(ROWS, 1)),
        rng.normal(size=(ROWS, OBSERVATION)), ends, np.where(rng.uniform(size=(ROWS, 1)) < 0.5, 0.99, 0.9),
    )  # fmt: skip
    return Batch(*(torch.tensor(np.asarray(column, np.float32)) for column in columns))


def weights_of(agent: TD3) -> dict[str, Weights]:
    networks = agent.networks()
    return {name: [p.detach().double().numpy().copy() for p in networks[name].parameters()] for name in networks}


def flat(agent: TD3, name: str) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in agent.networks()[name].parameters()])


def forward(weights: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    W1, b1, W2, b2 = weights
    hidden = np.maximum(x @ W1.T + b1, 0.0)
    return hidden @ W2.T + b2, hidden


def backward(weights: Weights, x: np.ndarray, hidden: np.ndarray, slope: np.ndarray) -> tuple[Weights, np.ndarray]:
    """Give the gradients of the weights and of the input, for the loss's slope in the output."""
    W1, _, W2, _ = weights
    inner = (slope @ W2) * (hidden > 0)
    return [inner.T @ x, inner.sum(0), slope.T @ hidden, slope.sum(0)], inner @ W1


class NumpyTD3:
    """Algorithm 1 of the paper without target noise, for networks of one hidden layer, in float64."""

    def __init__(self, weights: dict[str, Weights], policy_freq: int) -> None:
        self.weights, self.policy_freq, self.updates = weights, policy_freq, 0
        live = ("actor", "Q1", "Q2")
        self.first = {name: [np.zeros_like(w) for w in weights[name]] for name in live}
        self.second = deepcopy(self.first)
        self.steps = dict.fromkeys(live, 0)

    def update(self, batch: Batch) -> dict[str, float]:
        s, a, r, s_next, terminated, discount = (column.double().numpy() for column in batch[:6])
        w = self.weights
        self.updates += 1
        next_action = np.tanh(forward(w["actor_target"], s_next)[0])
        next_x = np.hstack([s_next, next_action])
        smaller = np.minimum(forward(w["Q1_target"], next_x)[0], forward(w["Q2_target"], next_x)[0])
        target_Q = r + discount * (1.0 - terminated) * smaller

        x, losses, gradients = np.hstack([s, a]), {}, {}
        for name in ("Q1", "Q2"):
            Q, hidden = forward(w[name], x)
            losses[name] = np.mean((Q - target_Q) ** 2)
            gradients[name] = backward(w[name], x, hidden, 2.0 * (Q - target_Q) / len(Q))[0]
        for name, gradient in gradients.items():
            self.adam(name, gradient)
        metrics = {"critic_loss": losses["Q1"] + losses["Q2"], "target_Q_mean": target_Q.mean()}

        if self.updates % self.policy_freq == 0:
            output, actor_hidden = forward(w["actor"], s)
            action = np.tanh(output)
            x = np.hstack([s, action])
            Q, hidden = forward(w["Q1"], x)
            to_action = backward(w["Q1"], x, hidden, np.full_like(Q, -1.0 / len(Q)))[1][:, OBSERVATION:]
            slope = to_action * (1.0 - action**2)
            self.adam("actor", backward(w["actor"], s, actor_hidden, slope)[0])
            metrics["actor_loss"] = -Q.mean()
            for name in ("actor", "Q1", "Q2"):
                w[f"{name}_target"] = [
                    (1.0 - TAU) * old + TAU * new for old, new in zip(w[f"{name}_target"], w[name], strict=True)
                ]
        return metrics

    def adam(self, name: str, gradients: Weights) -> None:
        self.steps[name] += 1
        n = self.steps[name]
        for index, gradient in enumerate(gradients):
            m = self.first[name][index] = BETA1 * self.first[name][index] + (1 - BETA1) * gradient
            v = self.second[name][index] = BETA2 * self.second[name][index] + (1 - BETA2) * gradient**2
            step = (m / (1 - BETA1**n)) / (np.sqrt(v / (1 - BETA2**n)) + EPSILON)
            self.weights[name][index] = self.weights[name][index] - LEARNING_RATE * step


def test_four_updates_give_the_numbers_of_the_paper():
    agent = make_agent()
    expected = NumpyTD3(weights_of(agent), policy_freq=2)
    for number in range(4):
        metrics, wanted = agent.update(make_batch(number)), expected.update(make_batch(number))
        assert metrics.keys() - {"Q1_mean"} == wanted.keys()
        for name, value in wanted.items():
            assert metrics[name].item() == pytest.approx(value, rel=1e-5, abs=1e-6), (number, name)
        for name, weights in weights_of(agent).items():
            for mine, theirs in zip(weights, expected.weights[name], strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6, err_msg=f"{name}, update {number}")


def test_adam_keeps_the_moments_worked_out_by_hand():
    agent = make_agent()
    expected = NumpyTD3(weights_of(agent), policy_freq=2)
    for number in range(2):
        agent.update(make_batch(number))
        expected.update(make_batch(number))
    for name in ("actor", "Q1", "Q2"):
        state = getattr(agent, f"{name}_optimizer").state
        for index, parameter in enumerate(agent.networks()[name].parameters()):
            assert state[parameter]["step"].item() == expected.steps[name]
            np.testing.assert_allclose(state[parameter]["exp_avg"], expected.first[name][index], atol=1e-6)
            np.testing.assert_allclose(state[parameter]["exp_avg_sq"], expected.second[name][index], atol=1e-7)


def test_termination_does_not_bootstrap():
    batch = make_batch(terminated=1.0)
    metrics = make_agent().update(batch)
    assert metrics["target_Q_mean"].item() == pytest.approx(batch.reward.mean().item(), abs=1e-6)


def test_anything_but_termination_bootstraps_with_the_discount_of_the_transition():
    agent, batch = make_agent(), make_batch(terminated=0.0)
    with torch.no_grad():
        next_action = agent.actor_target(batch.next_observation)
        smaller = torch.min(
            agent.Q1_target(batch.next_observation, next_action),
            agent.Q2_target(batch.next_observation, next_action),
        )
        expected = (batch.reward + batch.discount * smaller).mean().item()
    assert agent.update(batch)["target_Q_mean"].item() == pytest.approx(expected, abs=1e-6)


def test_actor_and_targets_move_only_at_every_policy_freq_th_update():
    agent = make_agent(policy_freq=3)
    for number in range(1, 7):
        before = {name: flat(agent, name) for name in NETWORKS}
        metrics = agent.update(make_batch(number))
        moved = {name for name in NETWORKS if not torch.equal(before[name], flat(agent, name))}
        assert moved == (set(NETWORKS) if number % 3 == 0 else {"Q1", "Q2"})
        assert ("actor_loss" in metrics) == (number % 3 == 0)


@pytest.mark.parametrize("tau", [0.005, 0.5, 1.0])
def test_targets_move_by_tau_towards_the_networks(tau):
    agent = make_agent(policy_freq=1, tau=tau)
    for number in range(3):
        before = {name: flat(agent, f"{name}_target") for name in ("actor", "Q1", "Q2")}
        agent.update(make_batch(number))
        for name, old in before.items():
            expected = torch.lerp(old, flat(agent, name), tau)
            torch.testing.assert_close(flat(agent, f"{name}_target"), expected, rtol=0, atol=1e-7)


def test_the_average_follows_the_actor_and_plays():
    agent = make_agent(average_tau=0.25)
    expected = flat(agent, "actor_average")
    for number in range(6):
        agent.update(make_batch(number))
        if agent.updates % agent.config.policy_freq == 0:
            expected += 0.25 * (flat(agent, "actor") - expected)
    torch.testing.assert_close(flat(agent, "actor_average"), expected)
    observation = np.ones((2, OBSERVATION), np.float32)
    explored, played = agent.select_action(observation), agent.select_action(observation, play=True)
    assert (explored != played).any()
    agent.actor.load_state_dict(agent.actor_average.state_dict())
    np.testing.assert_array_equal(agent.select_action(observation), played)


def test_without_averaging_the_actor_itself_plays():
    agent = make_agent()
    assert set(agent.networks()) == set(NETWORKS)
    assert agent.actor_average is agent.actor


def test_the_critics_are_two_networks():
    agent = make_agent()
    assert not torch.equal(flat(agent, "Q1"), flat(agent, "Q2"))
    mine, other = ({p.data_ptr() for p in network.parameters()} for network in (agent.Q1, agent.Q2))
    assert mine.isdisjoint(other)


def test_targets_start_as_copies_that_take_no_gradient():
    agent = make_agent()
    for name in ("actor", "Q1", "Q2"):
        assert torch.equal(flat(agent, name), flat(agent, f"{name}_target"))
        assert not any(parameter.requires_grad for parameter in agent.networks()[f"{name}_target"].parameters())


def test_the_actor_update_leaves_weights_and_gradients_of_the_critics_alone(monkeypatch):
    agent, seen = make_agent(policy_freq=1), {}
    for name in ("Q1", "Q2"):
        optimizer, parameters = getattr(agent, f"{name}_optimizer"), list(agent.networks()[name].parameters())

        def step_and_look(optimizer=optimizer, parameters=parameters, name=name, step=optimizer.step):
            step()
            seen[name] = [(p.detach().clone(), p.grad.clone()) for p in parameters]

        monkeypatch.setattr(optimizer, "step", step_and_look)
    assert "actor_loss" in agent.update(make_batch())
    for name in ("Q1", "Q2"):
        for parameter, (weight, gradient) in zip(agent.networks()[name].parameters(), seen[name], strict=True):
            assert torch.equal(parameter, weight)
            assert torch.equal(parameter.grad, gradient)


def target_actions(agent: TD3, output: float) -> torch.Tensor:
    """Make the target actor constant, and give the actions that an update shows to the target critics."""
    last = agent.actor_target.net[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(output)
    seen = []
    handle = agent.Q1_target.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1].clone()))
    for number in range(20):
        agent.update(make_batch(number))
    handle.remove()
    return torch.cat(seen)


def test_target_noise_is_clipped_to_noise_clip():
    actions = target_actions(make_agent(policy_noise=10.0, noise_clip=0.3, policy_freq=100), output=0.0)
    assert actions.abs().max().item() == pytest.approx(0.3)
    assert (actions.abs() > 0.299).float().mean() > 0.9


def test_target_noise_has_the_deviation_of_policy_noise():
    actions = target_actions(make_agent(policy_noise=0.1, noise_clip=1.0, policy_freq=100), output=0.0)
    assert actions.std().item() == pytest.approx(0.1, rel=0.1)
    assert actions.mean().item() == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("output", [-10.0, 10.0])
def test_target_actions_stay_in_the_action_range(output):
    actions = target_actions(make_agent(policy_noise=0.5, noise_clip=0.5, policy_freq=100), output)
    assert actions.abs().max().item() == 1.0
    assert actions.abs().min().item() >= 0.5 - 1e-6


def test_the_same_seed_gives_the_same_weights_through_updates():
    agents = [make_agent(seed=seed, policy_noise=0.2) for seed in (5, 5, 6)]
    for agent in agents:
        for number in range(4):
            agent.update(make_batch(number))
    for name in NETWORKS:
        assert torch.equal(flat(agents[0], name), flat(agents[1], name))
        assert not torch.equal(flat(agents[0], name), flat(agents[2], name))


def test_making_an_agent_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    make_agent(policy_noise=0.2).update(make_batch())
    assert torch.equal(before, torch.get_rng_state())


def trained(**changes) -> TD3:
    agent = make_agent(seed=3, **changes)
    for number in range(5):
        agent.update(make_batch(number))
    return agent


def copy_of(groups: dict[str, dict[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
    return {name: {key: value.clone() for key, value in group.items()} for name, group in groups.items()}


def assert_same(a: dict[str, dict[str, torch.Tensor]], b: dict[str, dict[str, torch.Tensor]]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].keys() == b[name].keys()
        for key, value in a[name].items():
            assert torch.equal(value, b[name][key]), (name, key)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_what_tensors_gives_load_tensors_takes_exactly(layer_norm):
    agent, other = trained(layer_norm=layer_norm), make_agent(seed=9, layer_norm=layer_norm)
    other.load_tensors(copy_of(agent.tensors()))
    other.updates = agent.updates
    assert_same(agent.tensors(), other.tensors())
    for number in range(4):
        agent.update(make_batch(number))
        other.update(make_batch(number))
    assert_same(agent.tensors(), other.tensors())


def test_an_agent_that_never_updated_round_trips_too():
    agent, other = make_agent(seed=1), trained()
    other.load_tensors(copy_of(agent.tensors()))
    assert_same(agent.tensors(), other.tensors())


def test_networks_of_other_shapes_are_refused_by_name():
    groups = trained(hidden=(9,)).tensors()
    with pytest.raises(CheckpointError, match=r"actor does not fit: net\.0\.bias is \(9,\).* and \(8,\) here"):
        make_agent().load_tensors(groups)


def test_networks_of_other_depth_are_refused_by_name():
    with pytest.raises(CheckpointError, match=r"actor does not fit: net\.\d\.\w+ is"):
        make_agent().load_tensors(trained(hidden=(8, 8)).tensors())


@pytest.mark.parametrize("spoil", ["missing", "misshapen"])
def test_moments_that_do_not_fit_are_refused_by_name(spoil):
    groups = copy_of(trained().tensors())
    if spoil == "missing":
        del groups["Q2_optimizer"]["net.2.weight.exp_avg"]
    else:
        groups["Q2_optimizer"]["net.2.weight.exp_avg"] = torch.zeros(2, 2)
    with pytest.raises(CheckpointError, match=r"Q2_optimizer does not fit: net\.2\.weight\.exp_avg"):
        make_agent().load_tensors(groups)


def test_a_refused_checkpoint_leaves_the_agent_as_it_was():
    agent = make_agent()
    before, groups = copy_of(agent.tensors()), copy_of(trained().tensors())
    groups["Q2_target"]["net.0.bias"] = torch.zeros(1)
    with pytest.raises(CheckpointError):
        agent.load_tensors(groups)
    assert_same(before, agent.tensors())


def test_a_bandit_with_its_best_arm_at_0_3_is_learned():
    config = TD3Config(hidden=(64, 64), learning_rate=3e-3, device="cpu")
    agent, rng = TD3(1, 1, config, seed=0), np.random.default_rng(0)
    column, ones = torch.zeros(128, 1), torch.ones(128, 1)
    for _ in range(600):
        action = torch.tensor(rng.uniform(-1.0, 1.0, (128, 1)), dtype=torch.float32)
        agent.update(Batch(column, action, -((action - 0.3) ** 2), column, ones, 0.99 * ones))
    assert agent.select_action(np.zeros((1, 1)))[0, 0] == pytest.approx(0.3, abs=0.05)
