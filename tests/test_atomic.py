"""A file or directory is replaced as a whole, or not at all."""

import os

import pytest

from td3robot.atomic import Replacement, delete_leftovers, write_text


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path, durable):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    with Replacement(path, durable) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.suffix == ".csv", "some writers choose a format by it"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["table.csv"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_directory_is_replaced_with_all_its_files(tmp_path, durable):
    for number in range(2):
        with Replacement(tmp_path / "one", durable) as temporary:
            temporary.mkdir()
            (temporary / f"{number}.json").touch()
    assert names(tmp_path) == ["one"]
    assert names(tmp_path / "one") == ["1.json"]


def test_an_error_in_the_block_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    with pytest.raises(ValueError), Replacement(path) as temporary:
        temporary.write_text("new")
        raise ValueError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["table.csv"]


def test_content_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append((os.fstat(file).st_ino, (tmp_path / "a").exists())))
    write_text(tmp_path / "a", "text", durable=True)
    assert flushed == [((tmp_path / "a").stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_only_what_has_a_temporary_name_is_deleted_as_a_leftover(tmp_path):
    mine = [".last-mine.tmp", "config.yaml", "a.1.tmp", ".hidden"]
    for name in [*mine, ".config.12.tmp.yaml", ".last-000000009.123.tmp"]:
        (tmp_path / name).touch()
    delete_leftovers(tmp_path)
    assert names(tmp_path) == sorted(mine)


def test_a_file_never_replaces_a_directory(tmp_path):
    path = tmp_path / "sweep.json"
    (path / "kept").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_text(path, "{}")
    assert (path / "kept").is_dir()
    assert [each.name for each in tmp_path.iterdir()] == ["sweep.json"]
