import json
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from td3robot.deploy.recording import Record, RecordError, read_record


@pytest.fixture
def file_limit():
    """Let files grow to a size and no further, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_added_is_read_back(tmp_path):
    record = Record(tmp_path / "a" / "record.jsonl")
    record.add("one", q=np.array([1.0, 2.0]), count=np.int64(3), reasons=("lead",))
    record.add("two", nothing=None)
    record.close()
    one, two = read_record(record.path)
    assert (one["kind"], one["q"], one["count"], one["reasons"]) == ("one", [1.0, 2.0], 3, ["lead"])
    assert (two["kind"], two["nothing"]) == ("two", None)
    assert two["at"] >= one["at"]


def test_a_record_is_only_appended_to(tmp_path):
    for kind in ("one", "two"):
        record = Record(tmp_path / "record.jsonl")
        record.add(kind)
        record.close()
    assert [line["kind"] for line in read_record(record.path)] == ["one", "two"]


def test_a_full_disk_is_said_once_and_leaves_whole_lines(tmp_path, file_limit):
    record = Record(tmp_path / "record.jsonl")
    record.add("before", text="x" * 100)
    file_limit(300)
    with pytest.raises(RecordError, match=r"cannot be written any more \(.*\), so the arm was stopped; what was"):
        record.add("too much", text="x" * 500)
    record.add("after")
    record.flush()
    record.close()
    assert [line["kind"] for line in read_record(record.path)] == ["before"]


def test_a_killed_process_leaves_every_line_it_wrote(tmp_path):
    path = tmp_path / "record.jsonl"
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from td3robot.deploy.recording import Record\n"
        "record = Record(Path(sys.argv[1]))\n"
        "for step in range(1000):\n"
        "    record.add('period', step=step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], env=os.environ, timeout=60)
    assert result.returncode == -signal.SIGKILL
    assert [line["step"] for line in read_record(path)] == list(range(1000))


def test_a_line_that_was_cut_off_is_the_end(tmp_path):
    path = tmp_path / "record.jsonl"
    path.write_text(json.dumps({"kind": "one"}) + "\n" + '{"kind": "tw')
    assert [line["kind"] for line in read_record(path)] == ["one"]


def test_what_is_no_record_is_refused(tmp_path):
    path = tmp_path / "record.jsonl"
    path.write_text("hello\nworld\n")
    with pytest.raises(RecordError, match="is no record: line 1 is not JSON"):
        list(read_record(path))
    with pytest.raises(RecordError, match="cannot be read"):
        list(read_record(tmp_path / "none"))


def test_a_record_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"cannot be made: .*; choose another --records"):
        Record(tmp_path / "file" / "record.jsonl")
