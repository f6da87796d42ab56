"""Sweeps on a cluster of several nodes, which are processes of this machine."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ray", reason="pip install 'td3robot[ray]'")

from learning.same_run import assert_same_run
from waiting import PATIENCE, linux_only, processes_of, wait_for

from td3robot.errors import ConfigError, MissingExtraError
from td3robot.sweep.pool import RayPool

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def cluster():
    """Start a head that trains nothing, and two nodes of one core."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    yield made
    made.shutdown()


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@linux_only
def test_a_run_whose_node_is_lost_is_resumed_on_another_to_the_same_end(cluster, tmp_path, start, alone, long_enough):
    sweep = tmp_path / "sweep"
    swept = start(
        "sweep", "gym_pendulum", "--seeds", 2, "--cores", 1, "--ray", cluster.address, "--out", sweep, *long_enough
    )
    paused: dict[int, int] = {}  # each run at its first checkpoint, so that neither ends before its node does

    def pause_saved():
        for seed in {0, 1} - set(paused):
            if list((sweep / f"000-seed{seed}").glob("last-*")):
                (paused[seed],) = processes_of(sweep / f"000-seed{seed}")
                os.kill(paused[seed], signal.SIGSTOP)
        return len(paused) == 2

    wait_for(pause_saved, "a checkpoint of each run")
    cluster.remove_node(cluster.workers.pop(), allow_graceful=False)
    lost = wait_for(lambda: [seed for seed in (0, 1) if not exists(paused[seed])], "the end of the lost node's run")
    (left,) = {0, 1} - set(lost)
    os.kill(paused[left], signal.SIGCONT)
    _, said = swept.communicate(timeout=PATIENCE)
    assert swept.returncode == 0, said
    resumed = [n for n in (0, 1) if (sweep / f"000-seed{n}.log").read_text().count("seed ") > 1]
    assert resumed == lost  # the other one never noticed
    for seed in (0, 1):
        assert_same_run(sweep / f"000-seed{seed}", alone(seed))


@pytest.mark.slow
def test_an_interrupted_sweep_has_the_cluster_save_its_runs(cluster, tmp_path, start, long_enough):
    sweep = tmp_path / "sweep"
    swept = start("sweep", "gym_pendulum", "--cores", 1, "--ray", cluster.address, "--out", sweep, *long_enough)
    wait_for(lambda: list((sweep / "000-seed0").glob("last-*")), "a checkpoint")
    swept.send_signal(signal.SIGINT)
    _, said = swept.communicate(timeout=PATIENCE)
    assert swept.returncode == 130, said
    assert "stopping after this step; saving" in (sweep / "000-seed0.log").read_text()


def test_the_file_for_a_cluster_is_one_that_ray_up_accepts():
    from ray.autoscaler._private.util import prepare_config, validate_config
    from ray.scripts.scripts import cli

    config = yaml.safe_load((ROOT / "launch" / "cluster.yaml").read_text())
    validate_config(prepare_config(config))
    known = {option for parameter in cli.commands["start"].params for option in parameter.opts}
    commands = [line for key in ("head", "worker") for line in config[f"{key}_start_ray_commands"]]
    used = {word.partition("=")[0] for line in commands for word in line.split() if word.startswith("--")}
    assert {"--head", "--address"} <= used <= known


def test_more_cores_than_any_node_has_are_refused(cluster, td3robot, tmp_path):
    status, _, said = td3robot(
        "sweep", "gym_pendulum", "--cores", 99, "--ray", cluster.address, "--out", tmp_path / "x"
    )
    assert status == 2
    assert "--cores 99 is more than any node of" in " ".join(said.split())
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:port"])
def test_an_address_where_nobody_answers_is_one_sentence(td3robot, tmp_path, address):
    status, _, said = td3robot("sweep", "gym_pendulum", "--ray", address, "--out", tmp_path / "x")
    assert status == 2
    assert f"nobody answers at --ray {address}" in " ".join(said.split())
    assert not (tmp_path / "x").exists()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("td3robot.errors.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r"td3robot\[ray\]"):
        RayPool("127.0.0.1:6379", 1)


def test_something_else_that_listens_there_is_no_cluster(monkeypatch):
    monkeypatch.setattr("td3robot.ray_cluster.ANSWER_S", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=server.accept, daemon=True).start()
        with pytest.raises(ConfigError, match="no Ray cluster answers at"):
            RayPool(f"127.0.0.1:{server.getsockname()[1]}", 1)


FOUR = "training.environments=4"


@pytest.mark.slow
def test_environments_on_a_cluster_give_the_run_of_those_here(cluster, tmp_path, start, alone, long_enough):
    run, nodes = tmp_path / "run", len(cluster.workers)
    training = start(
        "train", "gym_pendulum", "--out", run, "--ray", cluster.address, "--workers", nodes, *long_enough,
        f"--set={FOUR}",
    )  # fmt: skip
    _, said = training.communicate(timeout=PATIENCE)
    assert training.returncode == 0, said
    assert_same_run(run, alone(0, f"--set={FOUR}"))


@pytest.mark.slow
def test_a_training_whose_node_is_lost_is_saved_and_goes_on_anywhere(cluster, tmp_path, start, alone, long_enough):
    cluster.workers.append(cluster.add_node(num_cpus=1))
    cluster.wait_for_nodes()
    run, nodes = tmp_path / "run", len(cluster.workers)  # a core each: every node has a worker
    training = start(
        "train", "gym_pendulum", "--out", run, "--ray", cluster.address, "--workers", nodes, *long_enough,
        f"--set={FOUR}",
    )  # fmt: skip
    wait_for(lambda: list(run.glob("last-*")), "a checkpoint")
    cluster.remove_node(cluster.workers.pop(), allow_graceful=False)
    _, said = training.communicate(timeout=PATIENCE)
    said = " ".join(said.split())
    assert training.returncode == 2, said
    assert "a worker of the cluster is lost, and its environments with it" in said
    assert f"td3robot train --resume {run}" in said
    assert "Traceback" not in said
    again = start("train", "--resume", run)
    _, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    assert_same_run(run, alone(0, f"--set={FOUR}"))


@pytest.mark.parametrize(
    ("count", "sentence"),
    [(3, "--workers 3 is more than training.environments 2"), (99, "--workers 99 is more than")],
)
def test_more_workers_than_can_start_are_refused(cluster, td3robot, tmp_path, count, sentence):
    environments = 2 if count == 3 else 100
    status, _, said = td3robot(
        "train", "gym_pendulum", "--ray", cluster.address, "--workers", count, "--out", tmp_path / "x",
        "--set", f"training.environments={environments}",
    )  # fmt: skip
    assert status == 2
    assert sentence in " ".join(said.split())
    assert not (tmp_path / "x").exists()


def test_workers_without_a_cluster_are_refused(td3robot):
    status, _, said = td3robot("train", "gym_pendulum", "--workers", "2")
    assert (status, "--workers goes with --ray" in " ".join(said.split())) == (2, True)
