import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from td3robot.records import Record, RecordError, read_record


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


def test_a_record_that_is_deleted_meanwhile_is_written_again(tmp_path):
    path = tmp_path / "records" / "one" / "record.jsonl"
    record = Record(path)
    record.begin("run")
    record.add("period", step=1)
    shutil.rmtree(tmp_path / "records")
    record.add("period", step=2)
    record.close()
    assert [line["kind"] for line in read_record(path)] == ["session", "period", "period"]


def test_a_full_disk_is_said_once_and_leaves_whole_lines(tmp_path):
    """In a process of its own: the limit that stands for a full disk holds for every file of a process."""
    path = tmp_path / "record.jsonl"
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from td3robot.records import Record, RecordError\n"
        "record = Record(Path(sys.argv[1]))\n"
        "record.add('before', text='x' * 100)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))\n"
        "try:\n"
        "    record.add('too much', text='x' * 500)\n"
        "except RecordError as error:\n"
        "    print(error)\n"
        "record.add('after')\n"
        "record.flush()\n"
        "record.close()\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"cannot be written any more \(.*\); what was recorded until then is there; make room", result.stdout
    )
    assert [line["kind"] for line in read_record(path)] == ["before"]


def test_a_killed_process_leaves_every_line_it_wrote(tmp_path):
    path = tmp_path / "record.jsonl"
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from td3robot.records import Record\n"
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
