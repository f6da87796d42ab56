"""Pages: whole without network, escaped, verdict first, with what is missing said in words."""

import hashlib
import json
import re
import shutil
from base64 import b64encode
from html.parser import HTMLParser

import numpy as np
import pytest

from td3robot.deploy.ledger import Ledger
from td3robot.errors import CheckpointError
from td3robot.format import NONE
from td3robot.metrics import evaluations
from td3robot.report.build import index_page, make_report
from td3robot.report.compare import comparison_page, settings_table
from td3robot.report.figures import Subject, comparison_table, differences
from td3robot.report.html import (
    ATTENTION,
    BAD,
    GOOD,
    Page,
    ReportError,
    Section,
    Table,
    Text,
    Verdict,
    render,
)
from td3robot.report.run import read_run
from td3robot.report.run_page import run_page
from td3robot.report.session import read_session
from td3robot.report.session_page import session_page, verdict
from td3robot.statistics import wilson_interval

TROUBLE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class Parsed(HTMLParser):
    """Collects tags with their attributes, scripts and the text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.text, self._open = [], [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data
        elif "style" not in self._open:
            self.text += data

    @property
    def plots(self):
        return [json.loads(text) for attributes, text in self.scripts if "type" in attributes]


def page_with(text):
    section = Section(text, [Text(text), Table([text], [[text]])])
    return Page(text, text, Verdict(GOOD, text, text), [], [section], text)


@pytest.fixture(scope="module")
def run_html(made):
    return render(run_page(read_run(made)))


def test_a_page_needs_no_network_and_lets_nothing_else_run(run_html):
    found = Parsed(run_html)
    outside = [attributes for _, attributes in found.tags if {"src", "href"} & set(attributes)]
    assert all(each.get("href", "#").startswith("#") for each in outside)
    (policy,) = [each["content"] for _, each in found.tags if each.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline'; img" in policy  # styles alone, which plotly sets
    executed = [text for attributes, text in found.scripts if "type" not in attributes]
    assert len(executed) == 2
    for script in executed:
        assert b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_a_page_without_plots_carries_no_plotting_library():
    assert len(render(page_with("x"))) < 30_000


def test_whatever_a_user_names_is_text():
    html = render(page_with(TROUBLE))
    assert TROUBLE not in html
    found = Parsed(html)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert len(found.scripts) == 1
    assert found.text.count("alert(1)") >= 5


def test_a_run_in_a_folder_with_a_script_s_name_is_text(made, tmp_path):
    run = tmp_path / "<script>alert(1)<" / "script>"
    shutil.copytree(made, run)
    other = tmp_path / "b & <b>c</b>".replace("/", "_")
    shutil.copytree(made, other)
    for html in (render(run_page(read_run(run))), render(comparison_page([read_run(run), read_run(other)]))):
        assert "<script>alert(1)" not in html
        assert "<b>c" not in html.replace("<br>", "")
        assert Parsed(html).plots


def test_a_record_s_texts_are_text(write_record):
    html = render(session_page(read_session(write_record(override=TROUBLE, checkpoint=f"a/{TROUBLE}"))))
    found = Parsed(html)
    assert "<script>alert" not in html
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert f"for the reason: {TROUBLE}" in found.text


def test_a_log_s_columns_are_text(tmp_path):
    run = robot_run(tmp_path / "run")
    (run / "metrics.csv").write_text(
        "step,guard/<a href='javascript:alert(1)'>x</a>,reward/</script>\n1,0.5,1\n2,0.5,1\n"
    )
    html = render(run_page(read_run(run)))
    names = [trace.get("name", "") for plot in Parsed(html).plots for trace in plot["data"]]
    assert "(a href='javascript:alert(1)')x(/a)" in names
    assert not any("<" in name for name in names)


def test_a_run_s_page_has_every_curve(run_html):
    found = Parsed(run_html)
    titles = re.findall(r"<h2>(.*?)</h2>", run_html)
    assert titles == [
        "What was asked",
        "Learning curves",
        "Time and speed",
        "Other metrics",
        "Evaluations",
        "Environment and versions",
    ]
    others = ["Mean abs (action)", "Saturated (action)", "Actor loss (learner)"]
    assert set(others) <= set(re.findall(r"<h3>(.*?)</h3>", run_html))  # a new column needs no edit here
    assert len(found.plots) == 5 + len(others)  # return, loss, value, time, speed: neither success nor a guard
    assert "Pendulum-v1 with TD3" in found.text
    assert "mean return of" in found.text


def robot_run(folder, seed=0, successes=(2, 10)):
    """Write the log of a robot's run, without any checkpoint."""
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text(
        "step,episode/success,episode/return,steps_per_second,time/simulation,time/learner,reward/progress,guard/lead\n"
        f"1000,0.0,{seed},50,0.5,0.5,0.1,\n2000,0.5,{seed + 2},50,0.5,0.5,0.2,0.25\n3000,torn"
    )
    (folder / "evaluations.csv").write_text(
        "step,success_rate,episodes,mean_return\n"
        + "".join(f"{1000 * (n + 1)},{count / 10},10,{n}\n" for n, count in enumerate(successes))
    )
    return folder


def test_evaluations_have_their_95_percent_intervals(tmp_path):
    run = read_run(robot_run(tmp_path / "run"))
    rows = evaluations(run.log)
    assert [row["success_ci95"] for row in rows] == [wilson_interval(2, 10), wilson_interval(10, 10)]
    html = render(run_page(run))
    assert "2 of 10 (5.7 to 51" in html
    (success,) = [
        plot for plot in Parsed(html).plots if plot["layout"]["yaxis"]["title"]["text"] == "successful episodes"
    ]
    assert [trace.get("name") for trace in success["data"]][1:] == [
        "95 % interval", "training, with exploration", "evaluation",
    ]  # fmt: skip


def test_a_run_without_checkpoints_or_evaluations_says_so(tmp_path):
    run = robot_run(tmp_path / "run")
    (run / "evaluations.csv").unlink()
    page = run_page(read_run(run))
    assert page.verdict.word == "Not evaluated"
    text = Parsed(render(page)).text
    assert "This run was not evaluated yet" in text
    assert "No checkpoint could be read" in text
    assert "It is logged up to step 2,000." in text


def test_a_damaged_checkpoint_is_said_and_the_rest_is_shown(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made, run)
    for actor in run.glob("*-*/actor.safetensors"):
        actor.write_bytes(b"x")
    text = Parsed(render(run_page(read_run(run)))).text
    assert "A checkpoint cannot be read" in text
    assert "is damaged: actor.safetensors" in text or "not what was saved" in text


def test_a_guard_s_reason_counts_as_zero_before_it_first_came_up(tmp_path):
    html = render(run_page(read_run(robot_run(tmp_path / "run"))))
    (plot,) = [plot for plot in Parsed(html).plots if plot["layout"]["yaxis"]["title"]["text"] == "share of steps"]
    (trace,) = plot["data"]
    assert unpacked(trace["x"]).tolist() == [1000, 2000]
    assert unpacked(trace["y"]).tolist() == [0, 25]


def test_curves_of_a_page_share_their_steps_and_write_whole_numbers(tmp_path):
    run, other = read_run(robot_run(tmp_path / "run")), read_run(robot_run(tmp_path / "other", 1, (2, 3, 4)))
    run.checkpoints = other.checkpoints = [("best-000002000", 1)]
    run.log["learner/critic_loss"] = [(2000.0, 0.05), (4000.0, 0.02)]
    other.log["learner/critic_loss"] = [(2000.0, 0.5)]
    for page, last in ((run_page(run), 4000.0), (comparison_page([run, other]), 4000.0)):
        over = [plot["layout"] for plot in Parsed(render(page)).plots]
        over = [each for each in over if each["xaxis"]["title"]["text"] == "environment steps"]
        assert len(over) > 1
        low, high = 1000.0 - 0.02 * (last - 1000.0), last + 0.02 * (last - 1000.0)
        assert all(each["xaxis"]["range"] == [low, high] for each in over)
    for values, tick in (((0.05, 0.02), None), ((0.5, 0.02), "D2"), ((5.0, 0.02), 1)):
        run.log["learner/critic_loss"] = list(zip((2000.0, 4000.0), values, strict=True))
        drawn = [plot["layout"]["yaxis"] for plot in Parsed(render(run_page(run))).plots]
        (axis,) = [each for each in drawn if each.get("type") == "log"]
        assert (axis.get("dtick"), axis["tickformat"]) == (tick, "~g")


@pytest.mark.filterwarnings("error")
def test_rows_in_which_nothing_was_counted_draw_no_warning(tmp_path):
    folder = robot_run(tmp_path / "run")
    (folder / "metrics.csv").write_text(
        "step,episode/success,episode/return,episode/steps,reward/progress,guard/lead\n"
        "1000,nan,1,nan,0.1,0.5\n2000,nan,3,nan,0.2,0.25\n3000,nan,nan,nan,0.3,\n"
    )
    plots = Parsed(render(run_page(read_run(folder)))).plots
    named = {plot["layout"]["yaxis"]["title"]["text"]: plot["data"] for plot in plots}
    assert [trace["name"] for trace in named["successful episodes"] if "name" in trace] == [
        "95 % interval", "evaluation",
    ]  # fmt: skip
    training, _ = named["return"]
    assert unpacked(training["x"]).tolist() == [1000, 2000]
    (guard,) = named["share of steps"]
    assert unpacked(guard["y"]).tolist() == [50, 25, 0]


def unpacked(values):
    from base64 import b64decode

    return np.frombuffer(b64decode(values["bdata"]), "<f4")


def test_a_foreign_folder_is_no_run(tmp_path):
    with pytest.raises(CheckpointError, match="it is no run"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("more", "level", "words"),
    [
        ({}, GOOD, "3 of 3 episodes succeeded (95 % interval 43.9 to 100"),
        ({"failing": {1}}, ATTENTION, "2 of 3 episodes"),
        ({"failing": {0, 1, 2}}, BAD, "0 of 3 episodes"),
    ],
)
def test_the_verdict_of_a_session(write_record, more, level, words):
    found = verdict(read_session(write_record(**more)))
    assert found.level == level
    assert words in found.sentence


def test_the_verdict_of_a_fault_and_of_a_cut_record(write_record):
    folder = write_record(episodes=2)
    path = folder / "record.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-4]))
    assert verdict(read_session(folder)).word == "Cut off"
    stop = {"kind": "stop", "at": 200.0, "ended": "fault", "fault": "a protective stop holds the arm"}
    rest = {"kind": "rest", "at": 201.0, "unknown": "no answer"}
    path.write_text("".join(lines[:-4]) + json.dumps(stop) + "\n" + json.dumps(rest) + "\n")
    found = verdict(read_session(folder))
    assert (found.level, found.word) == (BAD, "Fault")
    assert "a protective stop holds the arm" in found.sentence


def test_an_episode_that_a_fault_stopped_has_no_distance_and_no_travel_in_its_time(write_record):
    folder = write_record(episodes=1, periods=20)
    path = folder / "record.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [line | {"at": line["at"] + 25.0} if line["kind"] == "period" else line for line in lines]
    stop = {"kind": "stop", "at": 126.05, "ended": "fault", "fault": "a protective stop holds the arm"}
    rest = {"kind": "rest", "at": 127.0, "unknown": "no answer"}
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:-2], stop, rest]))
    figures = read_session(folder).figures() | {"mean_final_distance_m": 0.00104}
    (folder / "report.json").write_text(json.dumps({"figures": figures}))
    session = read_session(folder)
    page = session_page(session)
    (tile,) = [tile for tile in page.tiles if tile.label == "From the goal at the end"]
    assert tile.value == NONE
    (section,) = [section for section in page.sections if section.title == "Episodes"]
    number, outcome, away, seconds, periods, *_ = section.blocks[-1].rows[0]
    assert (number, outcome.text, away, seconds, periods) == ("1", "stopped", NONE, "1 s", "20")


def test_a_check_has_no_duration_and_an_index_counts_successes(write_record):
    folder = write_record(mode="check", episodes=0)
    path = folder / "record.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    tiles = session_page(read_session(folder)).tiles
    assert [tile.label for tile in tiles] == ["Speed", "Began"]
    whole = write_record("20260102-120000-000000-run-b", episodes=1)
    (whole / "report.json").write_text(json.dumps({"figures": read_session(whole).figures()}))
    rows = index_page(folder.parent).sections[0].blocks[-1].rows
    assert rows[0][-1] == "1 of 1 (20.7 to 100 %)"


def test_a_no_go_names_its_reason(tmp_path, contract, write_record):
    folder = write_record(mode="run", episodes=0)
    path = folder / "record.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    line["check"] |= {"go": False}
    line["check"]["findings"][0] |= {"verdict": "no-go", "found": "closed", "advice": "release them"}
    path.write_text(json.dumps(line) + "\n")
    found = verdict(read_session(folder))
    assert found.word == "No-go"
    assert found.sentence == "brakes: found closed, expected open. release them"


def test_a_session_s_page_has_every_section(write_record):
    html = render(session_page(read_session(write_record(failing={1}))))
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "The check before moving", "Episodes", "Joint tracking", "Latency and jitter", "Guard interventions",
        "Faults and the operator", "What this is about",
    ]  # fmt: skip
    found = Parsed(html)
    assert "Shoulder pan" in found.text
    assert "Joint acceleration" in found.text
    assert "There is no report.json beside the record" in found.text
    assert len(found.plots) == 1 + 7 + 4 + 1


def test_a_long_session_s_page_stays_small_and_says_what_it_left_out(write_record):
    short, long = (
        render(session_page(read_session(write_record(name, episodes=n, periods=100))))
        for name, n in (("short", 25), ("long", 100))
    )
    assert len(long) < 1.2 * len(short)
    assert "Each point stands for 8 control periods in a row" in Parsed(long).text


def test_differences_are_named_in_sentences():
    a = Subject("A", {"success_rate": 0.5, "success_ci95": (0.4, 0.6), "mean_return": 10.0})
    b = Subject("B", {"success_rate": 1.0, "success_ci95": (0.9, 1.0), "mean_return": 10.1})
    c = Subject("C", {"success_rate": 1.0, "success_ci95": (0.55, 1.0), "mean_return": 20.0})
    assert differences([a, b]) == [
        "B succeeds more often than A: 100 % (90 to 100 %) against "
        "50 % (40 to 60 %); the 95 % intervals do not overlap."
    ]
    sentences = differences([a, c])
    assert sentences[0].endswith("the 95 % intervals overlap, so this may be chance.")
    assert sentences[1] == "The mean return is larger for C than for A: 20 against 10, 100 % more."
    assert differences([b, b])[0].startswith("All succeed equally often")


def test_runs_side_by_side(tmp_path):
    runs = [read_run(robot_run(tmp_path / name, seed, successes)) for name, seed, successes in
            (("one", 0, (2, 10)), ("two", 4, (0, 5)))]  # fmt: skip
    for run, rate in zip(runs, (1.0, 0.5), strict=True):
        run.best = {
            "step": 2000,
            "success_rate": rate,
            "success_ci95": wilson_interval(int(10 * rate), 10),
            "episodes": 10,
        }
        run.checkpoints = [("best-000002000", 1)]
    html = render(comparison_page(runs))
    assert "Training one succeeds more often than training two" in Parsed(html).text


def test_seeds_are_drawn_as_median_and_spread(made, tmp_path):
    runs = []
    for seed in range(3):
        run = read_run(made)
        run.config = run.config | {"seed": seed}
        run.log = {"episode/return": [(1000.0, seed), (2000.0, 10.0 * seed)]}
        runs.append(run)
    html = render(comparison_page(runs))
    found = Parsed(html)
    assert "The runs differ only in their seeds (0, 1, 2)" in found.text
    (plot,) = [plot for plot in found.plots if plot["layout"]["yaxis"]["title"]["text"] == "return"]
    low, high, median = plot["data"][:3]
    assert [unpacked(each["y"]).tolist() for each in (low, high, median)] == [[0, 0], [2, 20], [1, 10]]


@pytest.mark.parametrize(
    ("seed", "step", "said"),
    [
        (0, 60, "The runs have the same configuration, seed and length."),
        (1, 60, "The runs differ only in their seeds (0, 1)."),
        (0, 50, "The runs differ only in their lengths."),
        (1, 50, "The runs differ only in their seeds (0, 1) and their lengths."),
    ],
)
def test_how_runs_of_one_setting_differ_is_told(made, seed, step, said):
    one, two = read_run(made), read_run(made)
    two.config, two.step = two.config | {"seed": seed}, step
    assert said in Parsed(render(comparison_page([one, two]))).text


def test_a_report_says_how_to_resume_a_run(made):
    run = read_run(made)
    assert f"td3robot train --resume {made} --more N" in Parsed(render(run_page(run))).text
    run.step = 40  # of 60
    text = Parsed(render(run_page(run))).text
    assert f"td3robot train --resume {made}" in text and "--more" not in text


def test_a_run_without_an_evaluation_lacks_nothing_else(td3robot, tmp_path, set_small):
    run = tmp_path / "run"
    assert td3robot("train", "gym_pendulum", "--out", run, *set_small, "--steps", 39)[0] == 0
    (run / "evaluations.csv").unlink()  # as if it had been stopped before its first
    assert read_run(run).missing == ["This run was not evaluated yet, so its success is not known."]


def test_settings_that_differ_are_listed(made):
    one, two = read_run(made), read_run(made)
    two.config = json.loads(json.dumps(two.config))
    two.config["agent"]["gamma"] = 0.5
    html = Parsed(render(comparison_page([one, two]))).text
    assert "agent.gamma" in html


def test_a_run_without_a_checkpoint_is_named_and_left_out_of_a_comparison(made, tmp_path):
    killed = robot_run(tmp_path / "s5")
    for others in ([read_run(made), read_run(made)], [read_run(made)], []):
        page = comparison_page([*others, read_run(killed)])
        assert "s5 holds no checkpoint that can be read; it is left out of the comparison." in page.verdict.sentence
        text = Parsed(render(page)).text
        assert "agent.gamma" not in text
        assert "Training s5" not in text


def test_a_changed_setting_is_listed_with_its_value_before_and_its_step(made):
    one, two = read_run(made), read_run(made)
    gamma = one.config["agent"]["gamma"]
    two.config = json.loads(json.dumps(two.config))
    two.config["agent"]["gamma"] = 0.9
    two.changes = [
        {"step": 30, "settings": {"agent.gamma": [gamma, 0.7]}, "why": "first"},
        {"step": 3032, "settings": {"agent.gamma": [0.7, 0.9]}, "why": "second"},
    ]
    (row,) = [row for row in settings_table([one, two]).rows if row[0] == "agent.gamma"]
    assert row == ["agent.gamma", f"{gamma:g}", f"{gamma:g}, 0.7 from step 30, 0.9 from step 3,032"]
    assert one.setting() != two.setting()
    assert "at step 3,032: agent.gamma from 0.7 to 0.9 (second)" in Parsed(render(run_page(two))).text


def test_a_column_is_headed_by_a_run_s_name_as_it_is_written():
    assert "text-transform" not in render(page_with("s3"))
    table = comparison_table([Subject("the simulated controller", {"success_rate": 1.0, "episodes": 2})])
    assert table.headers == ["", "The simulated controller"]


def test_an_index_lists_sessions_and_robots_that_wait(write_record, tmp_path):
    write_record("20260101-120000-000000-run-a")
    write_record("20260102-120000-000000-run-b")
    bad = write_record("20260103-120000-000000-run-c")
    (bad / "record.jsonl").write_text("")
    (tmp_path / "records" / "20260102-120000-000000-run-b" / "report.html").write_text("")
    ledger = {"robots": {"7": {"latched": {"at": "today", "fault": "it fell"}}, "8": {"latched": None}}}
    (tmp_path / "records" / "ledger.json").write_text(json.dumps(ledger))
    Ledger().latch("9", "it slipped")
    html = render(index_page(tmp_path / "records"))
    text = Parsed(html).text
    assert text.index("run-c") < text.index("run-b") < text.index("run-a")
    assert 'href="20260102-120000-000000-run-b/report.html"' in html
    assert "Robot 7 was stopped by a fault on today (it fell)" in text
    assert "Robot 8" not in text
    assert "(it slipped)" in text
    assert "the record is empty" in text


def test_nothing_of_the_user_s_is_overwritten(made, tmp_path):
    out = tmp_path / "mine.html"
    out.write_text("<p>mine</p>")
    with pytest.raises(ReportError, match="exists and is no report of td3robot; choose another --out, or give --force"):
        make_report([made], out)
    assert out.read_text() == "<p>mine</p>"
    make_report([made], out, force=True)
    make_report([made], out)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.html"]


def test_a_failed_write_leaves_the_report_before_it(made, tmp_path, monkeypatch):
    out = make_report([made], tmp_path / "r.html")
    before = out.read_bytes()
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(ReportError, match=r"cannot be written \(No space left on device"):
        make_report([made], out)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_foreign_report_json_is_refused_in_one_sentence(write_record):
    folder = write_record()
    (folder / "report.json").write_text(json.dumps({"figures": {"episodes": 3, "success_rate": "all"}}))
    with pytest.raises(ReportError, match="cannot be reported: a file in there has another form"):
        make_report([folder])
    assert not (folder / "report.html").exists()


def test_a_run_s_film_is_inside_its_page_unless_it_is_too_large(tmp_path, monkeypatch):
    run = robot_run(tmp_path / "run")
    (run / "reach.mp4").write_bytes(b"film")
    assert "data:video/mp4;base64,ZmlsbQ==" in render(run_page(read_run(run)))
    monkeypatch.setattr("td3robot.report.run_page.LARGEST_FILM", 3)
    assert "reach.mp4 is too large for this page" in render(run_page(read_run(run)))
