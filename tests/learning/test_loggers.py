"""Services get a training's rows; whatever they do, the training is the same and ends."""

import sys
from importlib.machinery import ModuleSpec
from math import isfinite
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace

import pytest

from td3robot.config import RunConfig, load_config
from td3robot.errors import ConfigError, MissingExtraError
from td3robot.learning import loggers
from td3robot.learning.loggers import Logger, require_loggers
from td3robot.learning.run_directory import different_settings
from td3robot.metrics import EVALUATIONS, METRICS, read_log
from td3robot.policy.checkpoint import newest

CONFIG = RunConfig.model_validate({"name": "a", "environment": {"kind": "gymnasium", "id": "X-v0"}})


class FakeWandb(ModuleType):
    """The part of wandb that is used."""

    def __init__(self, api_key="key", mode=None):
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.begun, self.rows, self.finished = [], [], 0
        self.api = SimpleNamespace(api_key=api_key)
        self.setup = lambda: SimpleNamespace(settings=SimpleNamespace(mode=mode))
        self.Settings = lambda **values: values

    def init(self, **about):
        self.begun.append(about)
        return self

    def define_metric(self, name, step_metric):
        """Ignore."""

    def log(self, row):
        self.rows.append(row)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def rows_of(run: Path):
    """Give the finite values of a run's own tables, by step and name."""
    points = {name: found for table in (METRICS, EVALUATIONS) for name, found in read_log(run, table).items()}
    return {(step, name): value for name, found in points.items() for step, value in found if isfinite(value)}


def test_a_service_gets_every_row_and_a_resumed_run_goes_on_there(wandb, pendulum_trainer):
    trainer = pendulum_trainer(["training.loggers=[wandb]"])
    trainer.train()
    trainer.close()
    run = trainer.run_directory
    got = {(row["step"], name): value for row in wandb.rows for name, value in row.items() if name != "step"}
    assert got == pytest.approx(rows_of(run), rel=1e-6)
    assert trainer.listener.messages == []
    assert wandb.finished == 1
    first = wandb.begun[0]
    assert (first["name"], first["config"]["agent.batch_size"]) == ("run", 16)
    assert (run / "wandb.id").read_text().strip() == first["id"]
    again = pendulum_trainer(["training.loggers=[wandb]", "training.steps=80"])
    again.resume(newest(run))
    again.train()
    again.close()
    assert [about["id"] for about in wandb.begun] == [first["id"]] * 2
    assert max(row["step"] for row in wandb.rows) == 80


def test_a_run_resumes_exactly_with_other_loggers():
    other = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update={"loggers": ("wandb",)})})
    assert different_settings(CONFIG, other) == {}


def broken(*arguments, **options):
    raise ConnectionError("no route\nto host")


@pytest.mark.parametrize("where", ["init", "log", "finish"])
def test_training_goes_on_without_a_service_that_fails(wandb, pendulum_trainer, where):
    setattr(wandb, where, broken)
    trainer = pendulum_trainer(["training.loggers=[wandb]"])
    trainer.train()
    trainer.close()
    assert trainer.step == 60
    assert trainer.listener.messages == [
        "the logger 'wandb' gets no more rows: ConnectionError: no route to host; training goes on, and metrics.csv "
        "and evaluations.csv have every row"
    ]
    assert len(read_log(trainer.run_directory, METRICS)["updates"]) == 3


def test_training_does_not_wait_for_a_service_that_hangs(wandb, tmp_path, monkeypatch):
    hung, said = Event(), []
    wandb.init = lambda **about: hung.wait(60.0)
    monkeypatch.setattr(loggers, "CLOSE_S", 0.01)
    monkeypatch.setattr(loggers, "MAX_QUEUED", 2)
    logger = Logger("wandb", CONFIG, tmp_path, said.append)
    for step in range(5):
        logger.add({"loss": 1.0}, step)
    logger.close()
    hung.set()
    assert len(said) == 1
    assert "it is 2 rows behind" in said[0]
    hung.clear()
    slow = Logger("wandb", CONFIG, tmp_path, said.append)
    slow.close()
    hung.set()
    assert "it did not take the last rows within 0.01 s" in said[1]


def test_nobody_is_asked_to_log_in(tmp_path, monkeypatch):
    fake, said = FakeWandb(api_key=None), []
    monkeypatch.setitem(sys.modules, "wandb", fake)
    logger = Logger("wandb", CONFIG, tmp_path, said.append)
    logger.close()
    assert fake.begun == []
    assert "nobody is logged in; run wandb login, or set WANDB_MODE=offline" in said[0]


def test_values_that_are_not_finite_are_left_out(wandb, tmp_path):
    logger = Logger("wandb", CONFIG, tmp_path, print)
    logger.add({"a": 1.0, "b": float("nan")}, 3)
    logger.close()
    assert wandb.rows == [{"step": 3, "a": 1.0}]


def test_a_missing_package_is_named_before_anything_begins(pendulum_trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "require_extra", lambda extra, purpose, *modules: broken_extra(extra, purpose))
    with pytest.raises(MissingExtraError, match=r"training.loggers: \[mlflow\] needs the extra 'mlflow'"):
        pendulum_trainer(["training.loggers=[mlflow]"])
    assert not (tmp_path / "run").exists()
    require_loggers(CONFIG)


def broken_extra(extra, purpose):
    raise MissingExtraError(extra, purpose)


def test_an_unknown_service_is_refused():
    with pytest.raises(ConfigError, match=r"unknown loggers 'comet' .choices: mlflow, wandb"):
        load_config(Path(__file__).parents[2] / "configs" / "gym_pendulum.yaml", ["training.loggers=[comet]"])


def trained_twice(pendulum_trainer, service):
    """Train, and go on from the end, with a service; give the run's directory."""
    trainer = pendulum_trainer([f"training.loggers=[{service}]"])
    trainer.train()
    trainer.close()
    again = pendulum_trainer([f"training.loggers=[{service}]", "training.steps=80"])
    again.resume(newest(trainer.run_directory))
    again.train()
    again.close()
    assert trainer.listener.messages == again.listener.messages == []
    return trainer.run_directory


@pytest.mark.thorough
def test_weights_and_biases_offline(pendulum_trainer, monkeypatch):
    """With the package itself, without a network: both parts of a run are in files that ``wandb sync`` sends."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(loggers, "CLOSE_S", 60.0)
    run = trained_twice(pendulum_trainer, "wandb")
    name = (run / "wandb.id").read_text().strip()
    files = list((run / "wandb").glob(f"offline-run-*/run-{name}.wandb"))
    assert len(files) == 2
    assert any(b"evaluation/mean_return" in file.read_bytes() for file in files)


@pytest.mark.thorough
def test_mlflow_in_a_file(pendulum_trainer, tmp_path, monkeypatch):
    """With the package itself and its store in SQLite."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr(loggers, "CLOSE_S", 120.0)
    run = trained_twice(pendulum_trainer, "mlflow")
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("td3robot")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == (run / "mlflow.id").read_text().strip()
    assert (found.info.status, found.data.params["agent.batch_size"]) == ("FINISHED", "16")
    history = client.get_metric_history(found.info.run_id, "updates")
    assert [(point.step, point.value) for point in history] == read_log(run, METRICS)["updates"]
    wanted = read_log(run, EVALUATIONS)["evaluation/mean_return"]
    points = client.get_metric_history(found.info.run_id, "evaluation/mean_return")
    assert [point.value for point in points] == pytest.approx([value for _, value in wanted])
