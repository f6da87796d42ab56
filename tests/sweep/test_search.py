"""A search by Optuna: what it tries, what it gives up, and how it is resumed."""

import errno
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="pip install 'td3robot[search]'")

from td3robot.config import load_config
from td3robot.errors import ConfigError, MissingExtraError
from td3robot.sweep.plan import make_plan
from td3robot.sweep.source import JOURNAL, Search
from td3robot.sweep.sweep import Sweep


def plan_of(search, **changes):
    base = load_config(Path("gym_pendulum"))
    choices = ["agent.layer_norm=true,false", "agent.hidden=[8,8],[16,16]"]
    intervals = ["agent.learning_rate=1e-5:1e-2:log", "agent.batch_size=16:64"]
    return make_plan(base, 1, changes.get("choices", choices), changes.get("intervals", intervals), search)


def values_of(overrides):
    return dict(override.split("=", 1) for override in overrides)


def test_every_setting_lies_in_its_range_and_they_differ(tmp_path):
    source = Search(tmp_path, plan_of(20))
    tried = []
    while (found := source.next()) is not None:
        tried.append(values_of(found[1]))
        source.finish(found[0], float(tried[-1]["agent.batch_size"]))
    assert len(tried) == 20
    assert {each["agent.layer_norm"] for each in tried} == {"true", "false"}
    assert {each["agent.hidden"] for each in tried} == {"[8,8]", "[16,16]"}
    assert all(1e-5 <= float(each["agent.learning_rate"]) <= 1e-2 for each in tried)
    assert all(16 <= int(each["agent.batch_size"]) <= 64 for each in tried)
    assert len({each["agent.learning_rate"] for each in tried}) > 10


def test_it_prefers_what_was_good(tmp_path):
    """The score is the batch size; the second half of the settings is larger than the first."""
    source = Search(tmp_path, plan_of(40, choices=[], intervals=["agent.batch_size=16:1024"]))
    tried = []
    while (found := source.next()) is not None:
        tried.append(int(values_of(found[1])["agent.batch_size"]))
        source.finish(found[0], float(tried[-1]))
    assert sum(tried[20:]) > 1.2 * sum(tried[:20])


def test_a_resumed_search_goes_on_with_what_was_interrupted_and_forgets_nothing(tmp_path):
    first = Search(tmp_path, plan_of(3))
    done, interrupted = first.next(), first.next()
    first.finish(done[0], 0.5)
    again = Search(tmp_path, plan_of(3))
    assert again.known() == [(*done, True), (*interrupted, False)]
    third = again.next()
    assert third[0] == 2
    assert third[1] not in (done[1], interrupted[1])  # the sampler does not begin where it began
    assert again.next() is None


def test_a_setting_that_failed_is_tried_again_on_resume(tmp_path):
    source = Search(tmp_path, plan_of(1))
    failed = source.next()
    source.finish(failed[0], None)
    assert source.next() is None
    assert Search(tmp_path, plan_of(1)).known() == [(*failed, False)]


def test_what_never_was_as_good_as_most_should_prune_once_five_are_complete(tmp_path):
    source = Search(tmp_path, plan_of(7))
    for _ in range(5):
        number, _ = source.next()
        source.report(number, [0.5, 0.6])
        assert not source.should_prune(number)
        source.finish(number, 0.55)
    bad, good = source.next()[0], source.next()[0]
    source.report(bad, [0.1])
    source.report(good, [0.7, 0.2])  # it was better once
    assert source.should_prune(bad)
    assert source.should_prune(bad)  # it stays so
    assert not source.should_prune(good)
    source.finish(bad, 0.1)
    source.finish(good, 0.45)
    assert [known.over for known in Search(tmp_path, plan_of(7)).known()] == [True] * 7


@pytest.mark.parametrize("text", ["{not a journal\n", "[1]\n", "\xff\n"])
def test_a_damaged_journal_is_named(tmp_path, text):
    (tmp_path / JOURNAL).write_text(text * 2)
    with pytest.raises(ConfigError, match=f"{JOURNAL} is damaged"):
        Search(tmp_path, plan_of(1))


def test_a_last_line_that_a_full_disk_tore_is_dropped(tmp_path):
    first = Search(tmp_path, plan_of(3))
    done = first.next()
    first.finish(done[0], 0.5)
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write('{"op_code": 4, "worker')
    again = Search(tmp_path, plan_of(3))
    assert again.known() == [(*done, True)]
    assert again.next()[0] == 1
    assert len(Search(tmp_path, plan_of(3)).known()) == 2


def test_a_journal_of_another_plan_is_named(tmp_path):
    Search(tmp_path, plan_of(3, choices=["agent.layer_norm=true,false"])).next()
    with pytest.raises(ConfigError, match="does not fit the sweep's plan"):
        Search(tmp_path, plan_of(3, choices=["agent.layer_norm=true,off"])).next()


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("td3robot.errors.find_spec", lambda module: None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"td3robot\[search\]"):
        Search(tmp_path, plan_of(1))


def test_a_full_disk_ends_in_one_sentence_and_what_was_tried_stays(tmp_path, monkeypatch):
    from optuna.storages.journal import JournalFileBackend

    source = Search(tmp_path, plan_of(3))
    number, overrides = source.next()
    source.finish(number, 0.5)

    def full(self, logs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(JournalFileBackend, "append_logs", full)
        sweep = Sweep(tmp_path, plan_of(3), source, None, lambda sweep: None)
        assert sweep._call_source(source.next, None) is None
    assert "cannot be written (No space left on device)" in sweep.stop_reason
    assert Search(tmp_path, plan_of(3)).known()[0] == (number, overrides, True)
