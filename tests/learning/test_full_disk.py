"""After a full disk, tables and TensorBoard's files are whole again."""

import csv
import errno

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from td3robot.config import RunConfig
from td3robot.learning.metrics import CsvTable, MetricsWriter


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def torn(self, data):
    self._writer.write(data[:3])  # what there was room for
    full()


def test_rows_that_found_no_room_are_written_with_the_next(tmp_path, monkeypatch):
    table = CsvTable(tmp_path / "metrics.csv", 100, print)
    table.add({"step": 1, "loss": 0.5})
    with monkeypatch.context() as disk:
        disk.setattr(csv.DictWriter, "writerow", full)
        with pytest.raises(OSError, match="No space"):
            table.add({"step": 2, "loss": 0.25})
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("2,0.")  # what there was room for
    with monkeypatch.context() as disk:
        disk.setattr(csv.DictWriter, "writerows", full)
        with pytest.raises(OSError, match="No space"):
            table.add({"step": 3, "loss": 0.125})
    table.add({"step": 4, "loss": 1.0})
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [(row["step"], row["loss"]) for row in csv.DictReader(file)] == [
            ("1", "0.5"), ("2", "0.25"), ("3", "0.125"), ("4", "1.0"),
        ]  # fmt: skip


def test_tensorboard_goes_on_in_another_file(tmp_path, monkeypatch):
    config, said = RunConfig.model_validate({"name": "a", "environment": {"kind": "gymnasium", "id": "X-v0"}}), []
    with MetricsWriter(tmp_path, 0, said.append, config) as writer:
        writer.add("metrics", {"step": 1, "loss": 0.5})
        with monkeypatch.context() as disk:
            disk.setattr(RecordWriter, "write", torn)
            writer.add("metrics", {"step": 2, "loss": 0.25})
        writer.add("metrics", {"step": 3, "loss": 0.125})
    assert said == ["TensorBoard's file could not be written: No space left on device; a new one follows"]
    files = list((tmp_path / "tensorboard" / tmp_path.name).glob("events.*"))
    assert len(files) == 2
    board = EventAccumulator(str(max(files, key=lambda file: int(file.name.rpartition(".")[2]))))  # a counter
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("loss")] == [(3, 0.125)]
