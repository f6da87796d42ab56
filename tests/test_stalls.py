"""A test in real time is tried again where this process stood still, and only there."""

import ctypes
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import stalls
from stalls import COMPUTING, SHORTEST_S, StallWatch

pytest_plugins = ["pytester"]

CONFTEST = "from stalls import pytest_runtest_protocol  # noqa: F401\n"
TEST = """
import pathlib
import pytest
seen = pathlib.Path(__file__).with_suffix(".seen")

@pytest.fixture(scope="session")
def once():
    assert not seen.exists()
    yield

@pytest.fixture
def anew():
    with seen.open("a") as file:
        file.write("x")

def test_it(once, anew):
    assert len(seen.read_text()) > {fails}
"""


@pytest.mark.parametrize(
    ("folder", "stall_s", "fails", "passed"),
    [("deploy", 0.2, 1, True), ("deploy", 0.2, 9, False), ("deploy", 0.01, 1, False), ("envs", 0.2, 1, False)],
)
def test_a_failure_is_tried_again_where_the_process_stood_still(pytester, monkeypatch, folder, stall_s, fails, passed):
    monkeypatch.setattr(stalls, "StallWatch", lambda: nullcontext(SimpleNamespace(longest_s=stall_s)))
    pytester.makeconftest(CONFTEST)
    file = pytester.mkdir("tests") / folder / "test_it.py"
    file.parent.mkdir()
    file.write_text(TEST.format(fails=fails))
    result = pytester.runpytest_inprocess("tests", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=int(passed), failed=int(not passed), warnings=None)


def test_a_process_that_is_held_up_is_noticed():
    with StallWatch() as watch:
        ctypes.PyDLL(None).usleep(300_000)  # keeps the interpreter
    assert watch.longest_s > SHORTEST_S


def test_files_that_only_compute_exist():
    assert [file for file in COMPUTING if not (Path(__file__).parents[1] / file).exists()] == []
