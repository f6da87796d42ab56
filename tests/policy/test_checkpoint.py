"""A checkpoint is whole or refused, loading runs no code, and a failed save costs nothing saved before."""

import errno
import hashlib
import json
import multiprocessing
import os
import pickle
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from td3robot import atomic, load_policy
from td3robot.errors import CheckpointError, Td3RobotError, TrainingDivergedError
from td3robot.learning import metrics
from td3robot.learning.td3 import NETWORKS, OPTIMIZERS
from td3robot.policy import checkpoint_writer
from td3robot.policy.checkpoint import Checkpoint, find, newest
from td3robot.policy.checkpoint_writer import CheckpointData, publish, write

ARRAYS = {"weights": {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.array([1, 2], np.uint8)}}

COUNTERS = {"step": 3, "updates": 0, "evaluated_step": 0, "warm_start": False}


def contents(size: int = 0) -> CheckpointData:
    arrays = ARRAYS | ({"big": {"x": np.arange(size, dtype=np.uint8)}} if size else {})
    return CheckpointData("name: test\n", {"counters": COUNTERS}, arrays)


def edit_manifest(path: Path, change) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def refusal(path: Path) -> str:
    """Give the sentence with which a checkpoint is refused, by every way to open it alike."""
    said = set()
    for open_it in (Checkpoint, load_policy, newest):
        with pytest.raises(CheckpointError) as caught:
            open_it(path)
        said.add(str(caught.value))
    assert len(said) == 1
    (sentence,) = said
    assert "\n" not in sentence
    return sentence


def files_of(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_what_was_written_is_read_exactly(tmp_path):
    write(tmp_path / "new" / "one", contents())
    saved = Checkpoint(tmp_path / "new" / "one")
    for name, array in ARRAYS["weights"].items():
        read = saved.arrays("weights")[name]
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
    assert saved.document("counters") == COUNTERS
    assert (saved.has("weights"), saved.has("counters"), saved.has("other")) == (True, True, False)
    assert saved.bytes == sum((saved.path / name).stat().st_size for name in saved.manifest["files"])
    assert [path.name for path in saved.path.parent.iterdir()] == ["one"]


def test_the_manifest_names_every_file_and_what_made_it(tmp_path):
    write(tmp_path / "one", contents())
    manifest = Checkpoint(tmp_path / "one").manifest
    assert sorted([*manifest["files"], "manifest.json"]) == files_of(tmp_path / "one")
    assert {"td3robot", "torch", "numpy", "mujoco", "gymnasium"} <= manifest["made_with"].keys()


def test_the_checkpoint_of_a_run_gives_its_policy_and_configuration(untrained):
    saved = Checkpoint(untrained)
    assert saved.config().name == "gym_pendulum"
    assert saved.policy().act(np.zeros(3)).shape == (1,)
    assert {*NETWORKS, *OPTIMIZERS, "normalizer", "replay", "episodes"} <= {
        name.removesuffix(".safetensors") for name in saved.manifest["files"]
    }


def test_a_flipped_byte_in_any_file_is_found(untrained):
    names = [name for name in files_of(untrained) if name != "manifest.json"]
    assert len(names) > 10
    for name in names:
        file, whole = untrained / name, (untrained / name).read_bytes()
        for index in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
            assert f"damaged: {name} is not what was saved" in refusal(untrained)
        file.write_bytes(whole[:-1])
        assert f"damaged: {name} is not what was saved" in refusal(untrained)
        file.write_bytes(whole)
    Checkpoint(untrained)


def test_a_flipped_byte_anywhere_in_the_manifest_is_found(tmp_path):
    write(tmp_path / "one", contents())
    file = tmp_path / "one" / "manifest.json"
    whole = file.read_bytes()
    remarks = range(whole.index(b'"made_with"'), whole.index(b"}", whole.index(b'"made_with"')))
    for index in set(range(len(whole))) - set(remarks):
        file.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        with pytest.raises(CheckpointError):
            Checkpoint(tmp_path / "one")


def test_a_missing_file_is_named(untrained):
    for name in files_of(untrained):
        if name == "manifest.json":
            continue
        (untrained / name).rename(untrained / "aside")
        assert f"is not whole: {name} is missing" in refusal(untrained)
        (untrained / "aside").rename(untrained / name)


def test_a_foreign_directory_is_refused(tmp_path):
    (tmp_path / "model.pt").write_text("weights")
    for open_it in (Checkpoint, load_policy, newest):
        with pytest.raises(CheckpointError, match="is not a td3robot checkpoint"):
            open_it(tmp_path)


def test_a_directory_that_does_not_exist_is_refused(tmp_path):
    for open_it, wanted in ((Checkpoint, "checkpoint"), (load_policy, "checkpoint"), (newest, "run")):
        with pytest.raises(CheckpointError, match=f"there is no {wanted}"):
            open_it(tmp_path / "none")


@pytest.mark.parametrize("text", ['{"format": "other"}', "[]", "3", "null"])
def test_a_manifest_of_other_software_is_refused(untrained, text):
    (untrained / "manifest.json").write_text(text)
    assert "is not a td3robot checkpoint: its manifest.json says so" in refusal(untrained)


def test_a_manifest_that_is_no_json_is_refused(untrained):
    (untrained / "manifest.json").write_bytes(b"\xff\xfe{")
    assert "manifest.json is not readable JSON" in refusal(untrained)


@pytest.mark.parametrize("files", [[], {"actor.safetensors": 3}, {"actor.safetensors": {"bytes": 3}}])
def test_a_damaged_manifest_is_refused(untrained, files):
    edit_manifest(untrained, lambda manifest: manifest.update(files=files))
    assert "manifest.json: files" in refusal(untrained)


def test_a_future_format_is_refused_with_both_versions(untrained):
    edit_manifest(untrained, lambda manifest: manifest.update(version=2))
    assert "has checkpoint format 2 and this td3robot reads format 1" in refusal(untrained)


@pytest.mark.parametrize("name", ["../outside", "sub/outside", "/etc/hostname", "..", "."])
def test_a_manifest_that_points_outside_is_refused(untrained, name):
    (untrained.parent / "outside").write_text("x")
    (untrained / "sub").mkdir()
    (untrained / "sub" / "outside").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    entry = {"sha256": digest, "bytes": 1}
    edit_manifest(untrained, lambda manifest: manifest["files"].__setitem__(name, entry))
    assert repr(name) in refusal(untrained) or f"{name} is missing" in refusal(untrained)


class Touch:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["actor", "normalizer"])
def test_a_pickle_under_the_name_of_safetensors_is_refused_and_does_not_run(untrained, tmp_path, name, sign):
    (untrained / f"{name}.safetensors").write_bytes(pickle.dumps({"net.0.weight": Touch(tmp_path / "ran")}))
    sign(untrained, f"{name}.safetensors")
    with pytest.raises(CheckpointError, match=f"{name}.safetensors is not a safetensors file .*; nothing was loaded"):
        load_policy(untrained)
    assert not (tmp_path / "ran").exists()


def test_yaml_with_code_is_refused_and_does_not_run(untrained, tmp_path, sign):
    (untrained / "config.yaml").write_text(f"!!python/object/apply:os.mkdir ['{tmp_path / 'ran'}']")
    sign(untrained, "config.yaml")
    with pytest.raises(Td3RobotError, match=r"config\.yaml"):
        Checkpoint(untrained).config()
    assert not (tmp_path / "ran").exists()


def test_a_normaliser_of_another_size_is_refused(untrained, sign):
    arrays = Checkpoint(untrained).arrays("normalizer")
    save_file(arrays | {"mean": np.zeros(4), "variance": np.ones(4)}, untrained / "normalizer.safetensors")
    sign(untrained, "normalizer.safetensors")
    with pytest.raises(CheckpointError, match="normaliser is for 4 numbers and the contract's observation has 3"):
        load_policy(untrained)


@pytest.mark.parametrize(
    "actor",
    [
        pytest.param({"net.0.weight": (1, 7), "net.0.bias": (1,)}, id="input"),
        pytest.param({"net.0.weight": (4, 3), "net.0.bias": (4,)}, id="output"),
        pytest.param({"l1.weight": (1, 3), "l1.bias": (1,)}, id="names"),
        pytest.param({"net.0.weight": (1, 3)}, id="bias missing"),
    ],
)
def test_an_actor_that_does_not_fit_its_contract_is_refused(untrained, actor, sign):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in actor.items()}
    save_file(arrays, untrained / "actor.safetensors")
    sign(untrained, "actor.safetensors")
    with pytest.raises(CheckpointError):
        load_policy(untrained)


def test_publish_keeps_only_the_newest_of_its_kind(tmp_path):
    for step in (1, 20, 300):
        publish(tmp_path, "last", step, contents())
    publish(tmp_path, "best", 20, contents())
    assert files_of(tmp_path) == ["best-000000020", "last-000000300"]
    assert find(tmp_path).name == "best-000000020"
    assert newest(tmp_path).path.name == "last-000000300"


OWN_NAMES = ["last-000000300-backup", "last-of-all", "best-of-all", "last-", "last-1e3", "last-²", ".last-mine.tmp"]


@pytest.mark.parametrize("name", OWN_NAMES)
def test_what_somebody_named_is_neither_resumed_nor_evaluated_nor_deleted(tmp_path, name):
    publish(tmp_path, "last", 20, contents())
    publish(tmp_path, "best", 20, contents())
    shutil.copytree(tmp_path / "last-000000020", tmp_path / name)
    publish(tmp_path, "last", 300, contents())
    publish(tmp_path, "best", 300, contents())
    atomic.delete_leftovers(tmp_path)
    assert files_of(tmp_path) == sorted([name, "best-000000300", "last-000000300"])
    assert find(tmp_path).name == "best-000000300"
    assert newest(tmp_path).path.name == "last-000000300"
    Checkpoint(tmp_path / name)  # it can be asked for by its path


def test_steps_are_ordered_as_numbers(tmp_path):
    write(tmp_path / "last-999999999", contents())
    write(tmp_path / "last-1000000000", contents())
    assert newest(tmp_path).path.name == "last-1000000000"


def test_publish_replaces_what_an_interrupted_deletion_left_of_the_same_step(tmp_path):
    (tmp_path / "best-000000007").mkdir()
    (tmp_path / "best-000000007" / "actor.safetensors").write_text("half a checkpoint")
    Checkpoint(publish(tmp_path, "best", 7, contents()))


def test_a_deletion_cut_off_leaves_nothing_half_under_the_name_of_a_checkpoint(tmp_path, monkeypatch):
    publish(tmp_path, "last", 1, contents())

    class Killed(BaseException):
        pass

    def kill_midway(path, **_):
        if path.is_dir():
            (path / "manifest.json").unlink()
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", kill_midway)
        with pytest.raises(Killed):
            publish(tmp_path, "last", 2, contents())
    assert [path.name for path in tmp_path.glob("last-*")] == ["last-000000002"]
    atomic.delete_leftovers(tmp_path)
    assert files_of(tmp_path) == ["last-000000002"]


def test_a_run_directory_without_checkpoints_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="is not a td3robot checkpoint and contains none"):
        newest(tmp_path)


def test_what_an_earlier_process_of_the_same_id_left_is_no_part_of_a_checkpoint(tmp_path):
    leftover = tmp_path / f".one.{os.getpid()}.tmp"
    leftover.mkdir()
    (leftover / "stale.json").write_text("{}")
    write(tmp_path / "one", contents())
    assert files_of(tmp_path / "one") == ["config.yaml", "counters.json", "manifest.json", "weights.safetensors"]
    assert files_of(tmp_path) == ["one"]


def test_everything_is_on_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    flushed = []

    def flush(descriptor, whole=os.fsync):
        flushed.append((os.fstat(descriptor).st_ino, (tmp_path / "one").exists()))
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    write(tmp_path / "one", contents())
    before = {node for node, named in flushed if not named}
    assert before == {path.stat().st_ino for path in (tmp_path / "one", *(tmp_path / "one").iterdir())}
    assert [node for node, named in flushed if named] == [tmp_path.stat().st_ino], "the name itself"


def test_saving_leaves_no_file_open_and_files_that_others_can_read(tmp_path):
    before = len(list(Path("/dev/fd").iterdir()))
    write(tmp_path / "one", contents())
    assert len(list(Path("/dev/fd").iterdir())) == before
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "one").iterdir()}
    assert modes["weights.safetensors"] == modes["config.yaml"] | 0o644


def test_settings_that_are_newer_than_a_checkpoint_are_named_with_their_values(untrained, sign):
    saved = Checkpoint(untrained)
    config = saved.config()
    assert saved.saved_config.newer_settings(config) == {}

    values = yaml.safe_load((untrained / "config.yaml").read_text())
    del values["agent"]["kind"], values["agent"]["n_step"], values["training"], values["environment"]["kwargs"]
    (untrained / "config.yaml").write_text(yaml.safe_dump(values))
    sign(untrained, "config.yaml")
    newer = Checkpoint(untrained).saved_config.newer_settings(config)
    assert newer == {
        "agent.n_step": 1, "environment.kwargs": {}, "training": config.training.model_dump(mode="json"),
    }, "agent.kind is left out: every earlier run was TD3's"  # fmt: skip


def test_cleaning_deletes_only_what_an_interrupted_save_left(tmp_path):
    publish(tmp_path, "last", 5, contents())
    shutil.copytree(tmp_path / "last-000000005", tmp_path / ".last-000000009.123.tmp")
    assert newest(tmp_path).path.name == "last-000000005"
    atomic.delete_leftovers(tmp_path)
    assert files_of(tmp_path) == ["last-000000005"]


def test_a_figure_that_is_not_finite_is_not_saved_and_nothing_is_left(tmp_path):
    with pytest.raises(CheckpointError):
        publish(tmp_path, "last", 5, CheckpointData("", {"evaluation": {"mean_return": float("nan")}}, {}))
    assert files_of(tmp_path) == []


def publish_on_a_small_disk(run: Path, limit: int, pipe) -> None:
    """Publish with files limited to some bytes, and tell how it went."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        publish(run, "last", 2, contents(size=10_000))
    except CheckpointError as error:
        pipe.send(str(error))
    else:
        pipe.send("saved")


def test_the_older_checkpoint_stays_when_the_disk_is_too_small(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["td3robot.cli", "td3robot.build", "torch._dynamo", "pytest"])
    publish(tmp_path, "last", 1, contents())
    for limit in (9_000, 10_060):  # in the middle of the big file, and at its very end
        mine, theirs = context.Pipe()
        process = context.Process(target=publish_on_a_small_disk, args=(tmp_path, limit, theirs))
        process.start()
        assert mine.poll(60)
        assert "last-000000002 could not be saved: " in mine.recv()
        process.join()
        assert files_of(tmp_path) == ["last-000000001"]
        newest(tmp_path)


def test_training_goes_on_when_the_disk_is_full_and_saves_when_it_is_not(pendulum_trainer, monkeypatch):
    trainer = pendulum_trainer(["training.evaluate_every=1000"])
    whole, saved_at = checkpoint_writer.save_file, []

    def fill_up(arrays, path):
        if trainer.step == 40 and path.name == "replay.safetensors":
            path.write_bytes(b"half")
            saved_at.append(newest(trainer.run_directory).document("counters")["step"])
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(arrays, path)

    monkeypatch.setattr(checkpoint_writer, "save_file", fill_up)
    trainer.train()
    assert saved_at == [20]
    (message,) = trainer.listener.messages
    assert "last-000000040 could not be saved: No space left on device; the previous checkpoint is untouched" in message
    assert newest(trainer.run_directory).document("counters")["step"] == 60
    assert [name for name in files_of(trainer.run_directory) if name.startswith((".", "last"))] == [
        "last-000000020",
        "last-000000060",
    ]


def test_training_ends_with_an_error_when_the_last_save_fails(pendulum_trainer, monkeypatch):
    trainer = pendulum_trainer(["training.evaluate_every=1000"])
    whole = checkpoint_writer.save_file

    def fill_up(arrays, path):
        if trainer.step >= 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(arrays, path)

    monkeypatch.setattr(checkpoint_writer, "save_file", fill_up)
    with pytest.raises(CheckpointError, match="last-000000060 could not be saved: No space left"):
        trainer.train()
    assert trainer.step == 60
    saved = newest(trainer.run_directory)
    assert saved.document("counters")["step"] == 20
    assert [name for name in files_of(trainer.run_directory) if name.startswith((".", "last"))] == ["last-000000020"]


def test_training_goes_on_when_the_metrics_find_no_room(pendulum_trainer, monkeypatch):
    trainer = pendulum_trainer()
    whole = metrics.CsvTable.add

    def fill_up(table, row):
        if row["step"] == 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(table, row)

    monkeypatch.setattr(metrics.CsvTable, "add", fill_up)
    trainer.train()
    assert newest(trainer.run_directory).document("counters")["step"] == 60
    assert "No space left" in " ".join(trainer.listener.messages)


def test_a_learner_that_diverged_is_not_saved_over_what_was_good(pendulum_trainer):
    trainer = pendulum_trainer(["agent.learning_rate=1e30", "training.steps=200"])
    with pytest.raises(TrainingDivergedError, match="diverged"):
        trainer.train()
    saved = newest(trainer.run_directory)
    assert saved.document("counters")["step"] < trainer.step
    for name in (*NETWORKS, *OPTIMIZERS):
        assert all(np.isfinite(array).all() for array in saved.arrays(name).values()), name


def test_a_checkpoint_for_play_is_not_resumed(pendulum_trainer):
    trainer = pendulum_trainer()
    trainer.train()
    with pytest.raises(CheckpointError, match="was saved for play"):
        pendulum_trainer().resume(Checkpoint(find(trainer.run_directory, ("best",))))


def test_a_checkpoint_of_another_network_is_not_resumed(pendulum_trainer):
    pendulum_trainer().save()
    other = pendulum_trainer(["agent.hidden=[9,8]"])
    with pytest.raises(CheckpointError, match=r"actor does not fit: net\.0\.bias"):
        other.resume(newest(other.run_directory))
