"""What a run shows of itself: its plot, and its cards in TensorBoard."""

import matplotlib.figure
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from td3robot.errors import CheckpointError
from td3robot.report import picture
from td3robot.report.picture import plot_run

EVALUATIONS = "step,success_rate,episodes,mean_return\n100,0.5,10,1.0\n200,0.9,10,2.0\n"
METRICS = "step,episode/success,episode/return,guard/lead\n100,0.4,1.0,\n150,0.6,1.5,0.25\n200,0.8,2.0,0.5\n"


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draw a run of three rows, and give its figure."""
    run = tmp_path / "my_run"
    run.mkdir()
    (run / "metrics.csv").write_text(METRICS)
    (run / "evaluations.csv").write_text(EVALUATIONS)
    figures = []

    class Kept(matplotlib.figure.Figure):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            figures.append(self)

    monkeypatch.setattr(picture, "Figure", Kept)
    plot_run(run, run / "training.png")
    assert (run / "training.png").read_bytes().startswith(b"\x89PNG")
    return figures[0]


def panel(figure, title):
    (axes,) = [axes for axes in figure.axes if axes.get_title() == title]
    return axes


def test_success_is_in_percent_with_its_interval(drawn):
    axes = panel(drawn, "Success")
    assert axes.yaxis.get_major_formatter()(50.0) == "50%"
    (band,) = axes.collections
    low, high = band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()
    assert (round(low, 1), round(high, 1)) == (23.7, 98.2)  # Wilson: 5 of 10 from 23.7 %, 9 of 10 to 98.2 %
    assert "95 % interval" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_guard_s_reasons_begin_where_the_run_begins(drawn):
    (line,) = panel(drawn, "Changed by the guard").lines
    assert line.get_xydata().tolist() == [[100, 0.0], [150, 25.0], [200, 50.0]]


def test_the_title_is_a_person_s_where_the_run_says_what_it_is(drawn, made):
    assert drawn.get_suptitle() == "my_run"
    assert picture._title(made) == "Pendulum-v1 (seed 0)"


def test_a_checkpoint_is_no_run_to_plot(untrained, tmp_path):
    with pytest.raises(CheckpointError, match="nothing to plot"):
        plot_run(untrained, tmp_path / "x.png")


def board(run):
    """Read what TensorBoard reads."""
    (folder,) = {path.parent for path in (run / "tensorboard").rglob("events.*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    return folder, events


def test_tensorboard_has_the_run_s_name_configuration_and_hyperparameters(made):
    folder, events = board(made)
    assert folder.name == made.name
    tags = events.Tags()
    assert "configuration/text_summary" in tags["tensors"]
    (text,) = events.Tensors("configuration/text_summary")[0].tensor_proto.string_val
    assert b"Pendulum-v1" in text
    assert b"learning_rate: 0.001" in text
    hyperparameters = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"learning_rate" in hyperparameters


def test_success_is_the_first_card(tmp_path, made):
    from td3robot.learning.metrics import MetricsWriter
    from td3robot.policy.checkpoint import newest

    said = []
    with MetricsWriter(tmp_path / "run", 0, said.append, newest(made).config()) as writer:
        writer.add("metrics", {"step": 1, "action/mean_abs": 0.1, "episode/success": 0.5})
        writer.add("evaluations", {"step": 1, "success_rate": 0.75, "mean_return": 1.0})
    assert said == []
    _, events = board(tmp_path / "run")
    tags = sorted(events.Tags()["scalars"])
    assert tags[:2] == ["Success/evaluation", "Success/training"]
    assert events.Scalars("Success/evaluation")[0].value == 0.75
    assert {"action/mean_abs", "evaluation/mean_return"} <= set(tags)


def test_an_older_run_keeps_its_place_in_tensorboard(tmp_path, made):
    from td3robot.learning.metrics import MetricsWriter
    from td3robot.policy.checkpoint import newest

    folder = tmp_path / "run" / "tensorboard"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.x").write_bytes(b"")
    with MetricsWriter(tmp_path / "run", 0, print, newest(made).config()):
        pass
    assert not [path for path in folder.iterdir() if path.is_dir()]
