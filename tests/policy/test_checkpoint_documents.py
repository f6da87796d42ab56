"""What is inside of a checkpoint is believed only if it can be: documents, tensors, and that they belong together."""

import json
import shutil

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from td3robot.config.plain import parse_plain
from td3robot.errors import CheckpointError, ConfigError, Td3RobotError
from td3robot.policy import checkpoint
from td3robot.policy.checkpoint import Checkpoint, find, load_policy, newest, opened
from td3robot.policy.checkpoint_writer import CheckpointData, publish
from td3robot.policy.documents import read_document
from td3robot.policy.listing import summary
from td3robot.policy.validation import require_playable, require_whole

NEVER = ["NaN", "-Infinity", "1e400", "-1e999", "9" * 5000, "[" * 90_000 + "]" * 90_000, '"\\ud800"', '"\\u001b[2J"']


@pytest.fixture
def saved(made, tmp_path):
    """Give a resumable checkpoint of a finished run, evaluated and updated, in a run directory of its own."""
    path = tmp_path / "run" / newest(made).path.name
    shutil.copytree(newest(made).path, path)
    return path


def whole(path):
    """Open a checkpoint as inspect and resume do."""
    opened = Checkpoint(path)
    require_whole(opened, opened.config())


def refused(path, open_it=whole):
    with pytest.raises(Td3RobotError) as caught:
        open_it(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return sentence


def places(values, at=()):
    for key, value in values.items() if isinstance(values, dict) else ():
        yield (*at, key)
        yield from places(value, (*at, key))


def edited(values, place, change):
    """Return a copy of a document, with ``change(parent, key)`` applied at a place."""
    copy = json.loads(json.dumps(values))
    parent = copy
    for key in place[:-1]:
        parent = parent[key]
    change(parent, place[-1])
    return copy


@pytest.mark.parametrize("name", ["counters", "evaluation", "random"])
def test_a_document_lacks_nothing_and_has_only_numbers_of_the_right_kind(saved, sign, name):
    file = saved / f"{name}.json"
    values = json.loads(file.read_text())
    for place in places(values):
        where = ".".join(place)
        changes = [lambda p, k: p.__setitem__(k, "x"), lambda p, k: p.__setitem__(k, [[]])]
        if place[-1] not in ("mean_return_ci95", "failures"):  # earlier versions have none
            changes.append(lambda p, k: p.pop(k))
        for change in changes:
            file.write_text(json.dumps(edited(values, place, change)))
            sign(saved, file.name)
            assert file.name in refused(saved) or "belong together" in refused(saved), where
        for text in NEVER:
            marked = json.dumps(edited(values, place, lambda p, k: p.__setitem__(k, "@"))).replace('"@"', text)
            file.write_text(marked)
            sign(saved, file.name)
            assert file.name in refused(saved), (where, text[:10])


@pytest.mark.parametrize("name", ["contract", "counters", "evaluation", "evaluations", "random", "manifest"])
@pytest.mark.parametrize("text", ["", "[]", "3", '"x"', "{}", "\0", '{"a": 1, "a": 2}', *NEVER])
def test_a_document_of_another_kind_is_one_sentence(saved, sign, name, text):
    (saved / f"{name}.json").write_text(text)
    if name != "manifest":
        sign(saved, f"{name}.json")
    assert name in refused(saved) or "its manifest.json says so" in refused(saved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": -1}, "step is -1, but it should be greater than or equal to 0"),
        ({"step": True}, "step is True, but it should be a valid integer"),
        ({"step": 1.0}, "step is 1.0, but"),
        ({"evaluated_step": 61}, "evaluated_step 61 is after step 60"),
        ({"evaluated_step": 0}, "names step 0 as evaluated, evaluation.json another"),
        ({"episodes": []}, "episodes"),
        ({"episodes": [0, 0]}, "2 episodes in progress, and its configuration 1 environments"),
        ({"updates": 10**9}, "1000000000 updates are more than 60 steps allow"),
        ({"updates": 1}, "1 updates are fewer than 60 steps call for"),
        ({"replay": {"next": 70}}, "writes the next transition at 70 of 60"),
    ],
)
def test_counters_are_possible_together(saved, sign, change, said):
    values = json.loads((saved / "counters.json").read_text())
    (saved / "counters.json").write_text(json.dumps(values | change))
    sign(saved, "counters.json")
    assert said in refused(saved)


def test_the_best_evaluation_is_one_of_all(saved, sign):
    values = json.loads((saved / "evaluations.json").read_text())
    assert json.loads((saved / "evaluation.json").read_text()) in values
    (saved / "evaluations.json").write_text(json.dumps([values[0] | {"mean_return": 1e6}]))
    sign(saved, "evaluations.json")
    assert "evaluation.json is none of those in evaluations.json" in refused(saved)


def test_a_success_rate_lies_inside_of_its_interval(tmp_path):
    figures = dict.fromkeys(("mean_final_distance_m", "max_tcp_speed_m_s", "max_joint_speed_rad_s"))
    figures |= {"guard_interventions": None, "episodes": 10, "mean_return": 1.0, "mean_steps": 5.0}
    file = tmp_path / "evaluation.json"
    for rate, interval, good in (
        (0.9, [0.5, 1.0], True),
        (0.9, [0.1, 0.2], False),
        (0.9, None, False),
        (None, None, True),
    ):
        file.write_text(json.dumps(figures | {"success_rate": rate, "success_ci95": interval}))
        if good:
            read_document(file)
        else:
            with pytest.raises(CheckpointError, match="success_rate"):
                read_document(file)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_weight_that_is_not_finite_or_absurd_is_refused_before_any_evaluation(saved, sign, value):
    networks = ["actor", "actor_target", "Q1", "Q2", "Q1_target", "Q2_target"]
    for name in [*networks, "normalizer", "replay"]:
        file = saved / f"{name}.safetensors"
        whole_file, arrays = file.read_bytes(), dict(load_file(file))
        key = sorted(arrays)[-1]
        arrays[key] = arrays[key].copy()
        arrays[key].flat[-1] = value
        save_file(arrays, file)
        sign(saved, file.name)
        assert f"holds {value}" in refused(saved) or "beyond" in refused(saved) or "discount" in refused(saved), name
        if name in ("actor", "normalizer"):
            refused(saved, load_policy)
        file.write_bytes(whole_file)
        sign(saved, file.name)
    whole(saved)


def empty(arrays):
    arrays.clear()


def negative(arrays):
    key = next(key for key in arrays if key.endswith("exp_avg_sq"))
    arrays[key] = -1.0 - arrays[key]


def without_step(arrays):
    del arrays["net.0.bias.step"]


@pytest.mark.parametrize(
    ("change", "said"),
    [(empty, "is empty after"), (negative, "cannot be negative"), (without_step, "net.0.bias.step is None")],
)
def test_an_optimizer_that_cannot_be_is_refused(saved, sign, change, said):
    for name in ("actor_optimizer", "Q1_optimizer", "Q2_optimizer"):
        file = saved / f"{name}.safetensors"
        kept, arrays = file.read_bytes(), dict(load_file(file))
        change(arrays)
        save_file(arrays, file)
        sign(saved, file.name)
        assert said in refused(saved)
        file.write_bytes(kept)
        sign(saved, file.name)


def test_nothing_that_a_resumed_run_needs_may_be_missing(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    for name in manifest["files"]:
        if name in ("replay.safetensors", "interim.safetensors", "evaluations.json"):
            continue  # without the first it was saved for play, without the others by an earlier version
        left = {key: value for key, value in manifest["files"].items() if key != name}
        (saved / "manifest.json").write_text(json.dumps(manifest | {"files": left}))
        assert name.partition(".")[0] in refused(saved), name


def test_inspect_refuses_what_resuming_would(td3robot, saved, sign):
    arrays = dict(load_file(saved / "Q2.safetensors"))
    arrays["net.0.bias"] = arrays["net.0.bias"] * np.nan
    save_file(arrays, saved / "Q2.safetensors")
    sign(saved, "Q2.safetensors")
    for arguments in (["inspect", saved], ["train", "--resume", saved.parent, "--more", "5"]):
        status, out, err = td3robot(*arguments)
        assert (status, out) == (2, "")
        assert "Q2.safetensors: net.0.bias holds nan" in err
        assert "Traceback" not in err


def test_a_configuration_of_other_networks_is_refused_before_they_are_built(saved, sign):
    values = yaml.safe_load((saved / "config.yaml").read_text())
    values["agent"]["hidden"] = [10**7, 10**7]
    (saved / "config.yaml").write_text(yaml.safe_dump(values))
    sign(saved, "config.yaml")
    assert "actor does not fit" in refused(saved)


def test_a_normaliser_that_the_configuration_does_not_have_is_refused_for_play(untrained, sign):
    require_playable(Checkpoint(untrained), Checkpoint(untrained).config())
    text = (untrained / "config.yaml").read_text()
    (untrained / "config.yaml").write_text(
        text.replace("normalize_observations: true", "normalize_observations: false")
    )
    sign(untrained, "config.yaml")
    with pytest.raises(CheckpointError, match="its normaliser is enabled"):
        require_playable(Checkpoint(untrained), Checkpoint(untrained).config())


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    ["[" * 90_000, LAUGHS, "a: &a [*a]", "a: 2001-99-99", "a: 2001-01-01", "a: !!timestamp x", "a: !!int x", "3: 4",
     "a: !!binary eA==", "a: !!bool x", "a: !!set {b}", "? [a]\n: b", "a: 0x" + "f" * 4000, 'a: "\\ud800"', 'a: "\\0"'],
)  # fmt: skip
def test_yaml_that_is_more_than_plain_values_is_one_line(text):
    with pytest.raises(ValueError, match=r"^(is|holds) ") as caught:
        parse_plain(text)
    assert "\n" not in str(caught.value)


def test_a_configuration_that_is_no_text_is_one_sentence(saved, sign):
    for content in (b"\xff\xfe", b"name: [" * 50_000, LAUGHS.encode()):
        (saved / "config.yaml").write_bytes(content)
        sign(saved, "config.yaml")
        with pytest.raises((CheckpointError, ConfigError), match=r"config\.yaml"):
            Checkpoint(saved).config()


def test_a_damaged_document_is_nothing_in_a_listing(saved):
    (saved / "counters.json").write_text('{"step": "x"}')
    assert summary(saved)["step"] is None


def small(step):
    counters = {"step": step, "updates": 0, "evaluated_step": 0, "warm_start": False}
    return CheckpointData("name: x\n", {"counters": counters}, {"a": {"x": np.full(3, step, np.float32)}})


def test_a_checkpoint_that_is_being_read_is_not_deleted_under_its_reader(tmp_path):
    publish(tmp_path, "last", 1, small(1))
    reader = newest(tmp_path)
    publish(tmp_path, "last", 2, small(2))
    assert reader.document("counters")["step"] == 1
    assert reader.arrays("a")["x"][0] == 1.0
    first = reader.path
    del reader
    publish(tmp_path, "last", 3, small(3))
    assert not first.exists()
    assert newest(tmp_path).document("counters")["step"] == 3


def test_who_finds_a_checkpoint_that_is_replaced_before_it_is_opened_gets_the_newer_one(tmp_path, monkeypatch):
    publish(tmp_path, "last", 1, small(1))
    found = []

    def find_and_replace(path, kinds):
        found.append(find(path, kinds))
        if len(found) == 1:
            publish(tmp_path, "last", 2, small(2))
            shutil.rmtree(found[0], ignore_errors=True)
        return found[-1]

    monkeypatch.setattr(checkpoint, "find", find_and_replace)
    assert opened(tmp_path).document("counters")["step"] == 2


def test_a_run_that_keeps_an_average_is_not_played_without_it(pendulum_trainer, sign):
    trainer = pendulum_trainer(["agent.average_tau=0.1"])
    trainer.save()
    path = newest(trainer.run_directory).path
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"]["actor_average.safetensors"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert "holds no actor_average.safetensors" in refused(path, load_policy)


def test_a_run_that_keeps_an_average_is_played_by_it_without_its_replay_buffer(pendulum_trainer):
    trainer = pendulum_trainer(["agent.average_tau=0.1"])
    for parameter in trainer.agent.actor.parameters():
        parameter.data.add_(0.5)
    trainer.save()
    path = newest(trainer.run_directory).path
    whole_one = load_policy(path).act(np.ones(3))
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"]["replay.safetensors"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    np.testing.assert_array_equal(load_policy(path).act(np.ones(3)), whole_one)
