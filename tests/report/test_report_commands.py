"""The commands: where pages go, one sentence for each mistake, and reports that never spoil what they report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from td3robot.cli import reports
from td3robot.errors import RobotError
from td3robot.policy.checkpoint import find
from td3robot.records import RecordError
from td3robot.report import html as pages
from td3robot.report.build import default_place
from td3robot.report.html import GENERATOR


def test_report_of_a_run_a_session_and_both(td3robot, made, write_record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_record()
    for arguments, page in (
        ([folder], folder / "report.html"),
        ([folder / "record.jsonl"], folder / "report.html"),
        ([folder.parent], folder.parent / "index.html"),
        ([made, folder], tmp_path / "report.html"),
        ([made, "--out", tmp_path / "new" / "run.html"], tmp_path / "new" / "run.html"),
    ):
        status, out, err = td3robot("report", *arguments)
        assert (status, out) == (0, ""), err
        assert GENERATOR in page.read_text()
        assert "report: " in err


def test_a_released_policy_is_reported_by_its_name(td3robot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = td3robot("report", "ur5e_reach")
    assert status == 0, err
    assert "Succeeds" in (tmp_path / "report.html").read_text()
    status, _, err = td3robot("report", "ur5e_rech")
    assert status != 0
    assert "ur5e_reach" in err


def test_a_report_that_no_browser_can_open_says_so(td3robot, made, tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    status, _, err = td3robot("report", made, "--out", tmp_path / "page.html", "--open")
    assert status == 0, err
    assert "open the address yourself" in err


def test_pages_have_places_of_their_own(made, write_record):
    best = find(made, ("best",))
    folder = write_record()
    assert default_place([made]) == made / "report.html"
    assert str(default_place([best])) == "report.html"
    assert str(default_place([made, folder])) == "report.html"


CELL = Path(__file__).parents[2] / "configs" / "robots" / "ur5e.yaml"

BAD = {
    "nothing there": (["report", "NONE"], "there is no"),
    "an empty folder": (["report", "EMPTY"], "holds no run and no record"),
    "a text file": (["report", "TEXT"], "line 1 is not JSON"),
    "no page": (["report", "RECORD", "--out", "x.pdf"], "give a name that ends with .html"),
    "a folder in its place": (["report", "RECORD", "--out", "EMPTY"], "give a name that ends with .html"),
    "into a file": (["report", "RECORD", "--out", "TEXT/x.html"], "cannot be written"),
    "an index beside a run": (["report", "RECORDS", "RECORD"], "compare sessions of it by naming their folders"),
    "replay of nothing": (["replay", "NONE"], "holds no record.jsonl"),
    "replay of a folder": (["replay", "EMPTY"], "holds no record.jsonl"),
    "replay of a text": (["replay", "TEXT"], "line 1 is not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_sentence(td3robot, write_record, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    record = write_record()
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello\n")
    places = {"NONE": tmp_path / "none", "EMPTY": tmp_path / "empty", "TEXT": tmp_path / "text", "RECORD": record,
              "RECORDS": record.parent}  # fmt: skip
    arguments, words = BAD[case]
    before = sorted(tmp_path.rglob("*"))
    status, out, err = td3robot(
        *(str(places[each.split("/")[0]]) + each[len(each.split("/")[0]) :] if each.split("/")[0] in places else each
          for each in arguments)
    )  # fmt: skip
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1
    assert words in err
    assert sorted(tmp_path.rglob("*")) == before


def test_train_writes_its_report(td3robot, tmp_path, small, pendulum):
    run = tmp_path / "run"
    status, _, err = td3robot("train", pendulum, "--out", run, *(f"--set={each}" for each in small))
    assert status == 0, err
    assert f"report: {run / 'report.html'}" in err
    assert GENERATOR in (run / "report.html").read_text()


def test_a_report_that_fails_changes_nothing_else(td3robot, tmp_path, small, pendulum, monkeypatch):
    def fail(paths):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("td3robot.report.build.make_report", fail)
    run = tmp_path / "run"
    status, out, err = td3robot("train", pendulum, "--out", run, "--json", *(f"--set={each}" for each in small))
    assert status == 0, err
    assert json.loads(out)["step"] == 60
    assert f"the report was not written (a mistake of ours); write it with: td3robot report {run}" in err
    assert "Traceback" not in err
    assert list(run.glob("last-*"))


def test_a_report_needs_no_torch(made, write_record, tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from td3robot.report.build import make_report\n"
        "make_report([Path(path) for path in sys.argv[2:]], Path(sys.argv[1]))\n"
        "print('torch' in sys.modules)"
    )
    arguments = [str(tmp_path / "page.html"), str(made), str(write_record())]
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "False", result.stderr


def test_a_deployment_that_fails_is_reported_all_the_same(td3robot, write_record, monkeypatch):
    folder = write_record(episodes=0)

    def refuse(request, operator):
        request.on_record(folder / "record.jsonl")
        raise RobotError("no-go: brakes: closed")

    monkeypatch.setattr("td3robot.deploy.deployment.deploy", refuse)
    status, out, err = td3robot("deploy", "policy", "--robot", CELL, "--mode", "run")
    assert (status, out) == (2, "")
    assert f"report: {folder / 'report.html'}" in err
    assert "td3robot: no-go: brakes: closed" in err
    assert GENERATOR in (folder / "report.html").read_text()


def test_a_rehearsal_that_fails_is_reported_all_the_same(td3robot, write_record, monkeypatch):
    folder = write_record(mode="rehearse", episodes=1)

    def refuse(rehearsal):
        rehearsal.plan.on_record(folder / "record.jsonl")
        raise RobotError("the stand-in ended")

    monkeypatch.setattr("td3robot.deploy.rehearsal.Rehearsal.run", refuse)
    status, _, err = td3robot("rehearse", CELL.parents[2] / "checkpoints" / "ur5e_reach")
    assert status == 2
    assert f"report: {folder / 'report.html'}" in err
    assert "the stand-in ended" in err


def test_without_the_plotting_library_the_work_is_not_lost(td3robot, write_record, monkeypatch, capsys):
    pages._plotly.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    folder = write_record()
    reports.report_at_end([folder])
    assert (folder / "record.jsonl").is_file()
    assert not (folder / "report.html").exists()
    said = capsys.readouterr().err
    assert "plotly is not installed here, as on a robot's computer: copy the folder to a computer where all of" in said
    assert said.endswith(f"write it with: td3robot report {folder}\n")


def test_what_ended_a_session_is_told_before_its_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reports, "report_at_end", lambda paths: sys.stderr.write("the report\n"))
    with pytest.raises(typer.Exit), reports.watched_session(False) as begun:
        begun(tmp_path / "record.jsonl")
        raise RecordError("the arm was stopped")
    assert capsys.readouterr().err == "td3robot: the arm was stopped\nthe report\n"
