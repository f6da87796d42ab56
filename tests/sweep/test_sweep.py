"""The loop of a sweep, with a pool whose runs end as they are told to."""

import errno
import shutil
from pathlib import Path

import pytest

from td3robot.config import load_config
from td3robot.errors import CheckpointError, ConfigError
from td3robot.sweep import job, results
from td3robot.sweep import sweep as loop
from td3robot.sweep.job import REFUSED, STOPPED, Ending, Job
from td3robot.sweep.plan import make_plan
from td3robot.sweep.source import Grid
from td3robot.sweep.sweep import DONE, FAILED, PRUNED, WAITING, Run, Setting, Sweep

KILLED = -9


class ScriptedPool:
    """Ends each job at once, as a script says; jobs it says nothing about are done."""

    def __init__(self, script=(), slots=2):
        self.script = {name: list(endings) for name, endings in dict(script).items()}
        self.slots, self.running, self.started, self.stopped = slots, [], [], []

    def free_slots(self):
        return self.slots - len(self.running)

    def start(self, job):
        assert self.free_slots() > 0
        self.running.append(job)
        self.started.append(job.directory.name)

    def ended(self):
        found = []
        for each in list(self.running):
            endings = self.script.get(each.directory.name, [Ending(0)])
            if endings and endings[0] is None:  # it goes on, until it is stopped
                if each in self.stopped:
                    found.append((each, Ending(STOPPED)))
                continue
            found.append((each, endings.pop(0) if endings else Ending(0)))
        for each, _ in found:
            self.running.remove(each)
        return found

    def stop(self, job):
        self.stopped.append(job)

    def close(self):
        pass


class Curves(dict):
    """What runs' files say, by the name of the run: their success in evaluations."""

    def progress(self, directory):
        values = list(self.get(directory.name, []))
        steps = [100 * (index + 1) for index in range(len(values))]
        return job.Progress(step=steps[-1] if steps else 0, steps=steps, success=values, returns=values)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(loop, "POLL_INTERVAL_S", 0.0)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a sweep, and a log of what it showed."""

    def make(pool, *, seeds=1, choices=(), curves=(), source=None):
        base = load_config(Path("gym_pendulum"))
        plan = make_plan(base, seeds, list(choices), [], None)
        monkeypatch.setattr(loop, "progress", Curves(curves).progress)
        return Sweep(tmp_path, plan, source or Grid(plan), pool, lambda sweep: None)

    return make


def states(sweep):
    return {run.name: run.state for run in sweep.runs}


def test_every_setting_is_trained_with_every_seed_and_no_more_at_once_than_there_is_room(make):
    pool = ScriptedPool(slots=2)
    sweep = make(pool, seeds=2, choices=["agent.gamma=0.8,0.9"])
    sweep.train()
    assert pool.started == ["000-seed0", "000-seed1", "001-seed0", "001-seed1"]
    assert set(states(sweep).values()) == {DONE}
    assert [run.job.overrides for run in sweep.runs][2:] == [
        ("agent.gamma=0.9", "seed=0"), ("agent.gamma=0.9", "seed=1"),
    ]  # fmt: skip


def test_a_run_whose_process_dies_is_resumed_and_counted(make):
    pool = ScriptedPool({"000-seed0": [Ending(KILLED), Ending(1, "crashed"), Ending(0)]})
    sweep = make(pool, seeds=2)
    sweep.train()
    assert pool.started.count("000-seed0") == 3
    assert states(sweep) == {"000-seed0": DONE, "000-seed1": DONE}
    assert [run.resumes for run in sweep.runs] == [2, 0]


def test_a_run_that_always_dies_is_given_up_and_the_others_go_on(make):
    pool = ScriptedPool({"000-seed0": [Ending(KILLED, "its process ended with signal SIGKILL")] * 9})
    sweep = make(pool, seeds=3)
    sweep.train()
    assert states(sweep) == {"000-seed0": FAILED, "000-seed1": DONE, "000-seed2": DONE}
    assert sweep.runs[0].reason == "its process ended with signal SIGKILL, 4 times"
    assert pool.started.count("000-seed0") == 1 + loop.RESUMES


def test_a_run_that_is_refused_is_not_tried_again(make):
    pool = ScriptedPool({"000-seed0": [Ending(REFUSED, "no space left on device")]})
    sweep = make(pool, seeds=2)
    sweep.train()
    assert pool.started.count("000-seed0") == 1
    assert (sweep.runs[0].state, sweep.runs[0].reason) == (FAILED, "no space left on device")


@pytest.mark.parametrize("ending", [Ending(KILLED), Ending(1, "crashed"), Ending(REFUSED, "already at step 12000")])
def test_a_run_that_was_saved_at_its_end_is_done_however_its_process_ended(make, monkeypatch, ending):
    """As when its node is lost between its last save and its process's end."""
    pool = ScriptedPool({"000-seed0": [ending]})
    sweep = make(pool)
    monkeypatch.setattr(loop, "saved_step", lambda directory: sweep.plan.steps if pool.started else None)
    sweep.train()
    assert pool.started == ["000-seed0"]
    assert states(sweep) == {"000-seed0": DONE}


def test_a_stop_reaches_every_run_and_starts_no_other(make):
    pool = ScriptedPool({name: [None] for name in ("000-seed0", "000-seed1")})
    sweep = make(pool, seeds=4)
    sweep._show = lambda sweep: pool.running and not sweep.stop_requested and sweep.request_stop()
    sweep.train()
    assert [each.directory.name for each in pool.stopped] == ["000-seed0", "000-seed1"]
    assert pool.started == ["000-seed0", "000-seed1"]
    assert set(states(sweep).values()) == {WAITING}


def test_a_run_that_somebody_else_stops_is_said_to_be(make):
    sweep = make(ScriptedPool({"000-seed0": [Ending(STOPPED)]}))
    sweep.train()
    assert (sweep.runs[0].state, sweep.runs[0].reason) == (FAILED, "it was stopped from outside of the sweep")


class Impatient(Grid):
    """Gives up what is below 50 % at its second evaluation."""

    def __init__(self, plan):
        super().__init__(plan)
        self.scores, self.reported = {}, {}

    def report(self, number, values):
        self.reported[number] = values

    def should_prune(self, number):
        values = self.reported[number]
        return len(values) > 1 and values[1] < 0.5

    def finish(self, number, score):
        self.scores[number] = score


def test_a_pruned_setting_is_stopped_with_all_of_its_seeds(make):
    curves = {"000-seed0": [0.2, 0.4, 0.5], "000-seed1": [0.2, 0.5], "001-seed0": [0.5, 0.7], "001-seed1": [0.5, 0.9]}
    pool = ScriptedPool({"000-seed0": [None], "000-seed1": [None]})
    sweep = make(pool, seeds=2, choices=["agent.gamma=0.8,0.9"], curves=curves)
    sweep._source = source = Impatient(sweep.plan)
    sweep.train()
    assert [each.directory.name for each in pool.stopped] == ["000-seed0", "000-seed1"]
    assert list(states(sweep).values()) == [PRUNED, PRUNED, DONE, DONE]
    assert source.scores[1] == pytest.approx(0.65)
    assert source.scores[0] == pytest.approx((1.1 / 3 + 0.35) / 2)


def test_the_evaluations_that_all_seeds_have_had_are_reported(make):
    reported = []
    sweep = make(ScriptedPool(), seeds=2, curves={"000-seed0": [0.1, 0.2, 0.3], "000-seed1": [0.3, 0.6]})
    sweep._source.report = lambda number, values: reported.append(list(values))
    sweep.train()
    assert reported == [[pytest.approx(0.2), pytest.approx(0.4)]]


def test_a_setting_whose_runs_have_ended_is_not_given_up(make, monkeypatch):
    """Its last evaluation came with its end; there is nothing left to save."""
    sweep = make(ScriptedPool())
    sweep._source = source = Impatient(sweep.plan)
    collect = sweep._collect

    def ends_with_bad_news():
        if sweep._by_job:
            monkeypatch.setattr(loop, "progress", Curves({"000-seed0": [0.1, 0.2]}).progress)
        collect()

    sweep._collect = ends_with_bad_news
    sweep.train()
    assert states(sweep) == {"000-seed0": DONE}
    assert source.reported == {0: [0.1, 0.2]}
    assert source.scores == {0: pytest.approx(0.15)}


def test_all_settings_of_a_grid_are_known_from_the_start(make):
    """So that a stop loses none of those that are done."""
    pool = ScriptedPool({"000-seed0": [None]}, slots=1)
    sweep = make(pool, choices=["agent.gamma=0.8,0.9,0.95"])
    sweep._show = lambda sweep: sweep.stop_requested or sweep.request_stop()
    sweep.train()
    assert list(states(sweep)) == ["000-seed0", "001-seed0", "002-seed0"]


def test_a_stop_while_runs_are_started_reaches_them_all(make):
    pool = ScriptedPool({f"000-seed{n}": [None] for n in range(4)}, slots=4)
    sweep = make(pool, seeds=4)
    start = pool.start

    def interrupted(job):
        start(job)
        if job.directory.name == "000-seed1":
            sweep.request_stop()

    pool.start = interrupted
    sweep.train()
    assert pool.started == ["000-seed0", "000-seed1"]
    assert sorted({each.directory.name for each in pool.stopped}) == pool.started
    assert set(states(sweep).values()) == {WAITING}


def test_a_run_of_other_settings_is_not_taken_for_this_sweep_s(make, made, tmp_path):
    shutil.copytree(made, tmp_path / "000-seed0")
    (tmp_path / "config.yaml").write_text((made / "config.yaml").read_text())
    sweep = make(ScriptedPool(), choices=["agent.gamma=0.5"])
    with pytest.raises(ConfigError, match=r"000-seed0 was trained with agent.gamma .*, and this sweep wants 0.5"):
        sweep.train()


def test_a_setting_with_a_failed_run_has_no_score(make):
    told = {}
    pool = ScriptedPool({"000-seed0": [Ending(REFUSED, "why")]})
    sweep = make(pool, seeds=2, curves={"000-seed1": [0.5]})
    sweep._source.finish = told.__setitem__
    sweep.train()
    assert told == {0: None}


def test_settings_are_ranked_by_the_median_of_their_scores(make, tmp_path):
    curves = {"000-seed0": [0.0, 0.9], "000-seed1": [0.0, 0.9], "001-seed0": [0.8, 0.8], "001-seed1": [0.7, 0.8]}
    sweep = make(ScriptedPool(), seeds=2, choices=["agent.gamma=0.8,0.9"], curves=curves)
    sweep.train()
    found = results.figures(sweep)
    results.write_results(sweep, found)
    assert [setting["number"] for setting in found["settings"]] == [1, 0]
    assert found["settings"][0]["score"] == pytest.approx({"median": 0.775, "low": 0.75, "high": 0.8})
    assert found["settings"][1]["best"] == {"median": 0.9, "low": 0.9, "high": 0.9}
    assert found["measure"] == "success_rate"
    assert found["best_run"] == str(tmp_path / "001-seed0")  # of the better setting
    assert (tmp_path / "sweep.png").stat().st_size > 1000


def test_a_sweep_without_an_evaluation_has_results_without_figures(make):
    sweep = make(ScriptedPool({"000-seed0": [Ending(REFUSED, "why")]}))
    sweep.train()
    found = results.figures(sweep)
    results.write_results(sweep, found)
    assert found["best_run"] is None
    assert found["settings"][0]["score"] is None
    assert found["settings"][0]["runs"][0]["error"] == "why"


class Full(Impatient):
    """Writes down so many answers, and then finds the disk full."""

    def __init__(self, plan, room):
        super().__init__(plan)
        self.room = room

    def finish(self, number, score):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1
        super().finish(number, score)


def test_a_journal_that_cannot_be_written_stops_the_sweep_and_every_run_saves(make):
    pool = ScriptedPool({"001-seed0": [None]}, slots=2)
    sweep = make(pool, choices=["agent.gamma=0.8,0.9,0.95"], curves={"000-seed0": [0.6, 0.7]})
    sweep._source = Full(sweep.plan, room=0)
    sweep.train()
    assert "cannot be written (No space left on device)" in sweep.stop_reason
    assert [each.directory.name for each in pool.stopped] == ["001-seed0"]
    assert states(sweep) == {"000-seed0": DONE, "001-seed0": WAITING, "002-seed0": WAITING}


def test_what_ended_while_the_journal_could_not_be_written_is_told_on_resume(make, monkeypatch):
    sweep = make(ScriptedPool(), curves={"000-seed0": [0.6, 0.7]})
    sweep._source = source = Impatient(sweep.plan)
    monkeypatch.setattr(loop, "saved_step", lambda directory: sweep.plan.steps)
    sweep.train()
    assert sweep._pool.started == []
    assert (source.reported, source.scores) == ({0: [0.6, 0.7]}, {0: pytest.approx(0.65)})


@pytest.mark.parametrize("error", [CheckpointError("another training is using it"), OSError(errno.ENOSPC, "No space")])
def test_a_run_that_cannot_be_started_fails_alone(make, error):
    pool = ScriptedPool()
    sweep = make(pool, seeds=3)
    start = pool.start

    def refuses_one(job):
        if job.directory.name == "000-seed1":
            raise error
        start(job)

    pool.start = refuses_one
    sweep.train()
    assert states(sweep) == {"000-seed0": DONE, "000-seed1": FAILED, "000-seed2": DONE}
    assert sweep.runs[1].reason == f"it cannot be started: {error}"


def test_results_that_cannot_be_written_leave_those_before(make, tmp_path, monkeypatch):
    sweep = make(ScriptedPool())
    sweep.train()
    results.write_results(sweep, results.figures(sweep))
    before = sorted(tmp_path.iterdir()), (tmp_path / "sweep.json").read_text()

    def half(path, text, encoding):
        path.write_bytes(text.encode()[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        results.write_results(sweep, results.figures(sweep))
    assert (sorted(tmp_path.iterdir()), (tmp_path / "sweep.json").read_text()) == before


def test_a_setting_is_named_without_its_sections():
    assert Setting(0, ("agent.gamma=0.8", "agent.hidden=[8, 8]"), []).label == "gamma=0.8, hidden=[8, 8]"


def test_a_job_means_the_same_elsewhere(tmp_path):
    import pickle

    made = Job(tmp_path / "000-seed0", tmp_path / "config.yaml", ("seed=0",))
    assert pickle.loads(pickle.dumps(made)) == made
    assert Run(0, 0, made).name == "000-seed0"
