"""The tables of a run, whatever another program has made of them in between."""

import csv
import re

import pytest
import torch

from td3robot.learning.collector import CollectedSteps
from td3robot.learning.metrics import CsvTable, Window
from td3robot.learning.td3 import TD3
from td3robot.metrics import METRICS, read_log, run_charts


def table(path, until=100, said=None):
    return CsvTable(path, until, (said if said is not None else []).append)


def fill(path):
    made = table(path)
    for step in (10, 20, 30):
        made.add({"step": step, "loss": step / 8})
    made.add({"step": 40, "loss": 5.0, "late": 1.0})
    return path.read_bytes()


def test_a_table_goes_on_where_it_was_and_drops_what_lies_beyond(tmp_path):
    path = tmp_path / METRICS
    fill(path)
    table(path, until=20).add({"step": 21, "loss": 2.5})
    assert read_log(tmp_path, METRICS)["loss"] == [(10, 1.25), (20, 2.5), (21, 2.5)]


def excel_utf16(text):
    return text.replace(",", "\t").encode("utf-16")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace(",", ";").encode(), "names no column 'step'"),
        (excel_utf16, "codec can't decode"),
        (lambda text: "\n".join(text.splitlines()[1:]).encode(), "names no column 'step'"),
        (lambda text: text.encode().replace(b"loss", b"\xe4\xf6"), "codec can't decode"),
        (lambda text: b"\x00" * 100, "NUL|names no column 'step'"),
        (lambda text: b"PK\x03\x04" + bytes(range(128)), "."),
    ],
)
def test_a_table_that_another_program_spoilt_is_kept_and_training_goes_on(tmp_path, spoil, said):
    path, heard = tmp_path / METRICS, []
    spoilt = spoil(fill(path).decode())
    path.write_bytes(spoilt)
    made = table(path, said=heard)
    made.add({"step": 50, "loss": 1.0})
    assert read_log(tmp_path, METRICS) == {"loss": [(50.0, 1.0)]}
    assert (tmp_path / "metrics-set-aside-1.csv").read_bytes() == spoilt
    assert len(heard) == 1
    assert re.search(said, heard[0])
    assert "is no longer the table of this run" in heard[0] and "metrics-set-aside-1.csv" in heard[0]
    path.write_bytes(spoilt)
    table(path)
    assert (tmp_path / "metrics-set-aside-2.csv").read_bytes() == spoilt


def test_a_byte_order_mark_and_other_line_ends_cost_nothing(tmp_path):
    path, heard = tmp_path / METRICS, []
    text = fill(path).decode()
    path.write_bytes(text.replace("\r\n", "\n").encode("utf-8-sig"))
    assert len(read_log(tmp_path, METRICS)["loss"]) == 4
    table(path, said=heard).add({"step": 50, "loss": 1.0})
    with path.open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["10", "20", "30", "40", "50"]
    assert heard == []


def test_an_empty_table_is_begun_anew(tmp_path):
    path, heard = tmp_path / METRICS, []
    path.write_bytes(b"")
    table(path, said=heard).add({"step": 1, "loss": 2.0})
    assert read_log(tmp_path, METRICS) == {"loss": [(1.0, 2.0)]}
    assert heard == []


def test_a_metric_is_one_line_where_it_is_computed(monkeypatch, pendulum_trainer):
    """It gives a column, a TensorBoard card and a curve; the compiled learner, which lacks it, is not used."""
    learn = TD3.learn

    def with_one_line_more(self, batch, noise, with_actor):
        return learn(self, batch, noise, with_actor) | {"reward_mean": batch.reward.mean()}

    monkeypatch.setattr(TD3, "learn", with_one_line_more)
    trainer = pendulum_trainer(["training.learner=auto"])
    trainer.train()
    log = read_log(trainer.run_directory, METRICS)
    assert len(log["learner/reward_mean"]) > 0
    (board,) = (trainer.run_directory / "tensorboard").rglob("events.*")
    assert b"learner/reward_mean" in board.read_bytes()
    assert "Reward mean (learner)" in [chart.title for chart in run_charts([log])]


@pytest.mark.parametrize("order", [1, -1])
def test_an_episode_that_says_nothing_about_success_is_a_failure_beside_one_that_does(order):
    silent, successful = {"return": 1.0, "steps": 3.0}, {"return": 2.0, "steps": 3.0, "success": 1.0}
    window = Window()
    window.add(CollectedSteps([], [], [silent, successful][::order]))
    for each in (window, Window.of_state(window.state(), torch.device("cpu"))):
        assert each.figures() == {"episode/return": 1.5, "episode/steps": 3.0, "episode/success": 0.5}
