"""Whole rehearsals: short by default, with the figures that count with -m slow."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from timing import policy_step_ms

from td3robot.build import robot_spec
from td3robot.config import parse_config
from td3robot.deploy.loaded_policy import open_checkpoint
from td3robot.deploy.rehearsal import Plan, Rehearsal
from td3robot.errors import CameraError, ConfigError, RobotError
from td3robot.geometry import quaternion
from td3robot.report.session import read_session
from td3robot.simulators.presets import preset
from td3robot.tasks.scripted import scripted_grasp

GRASP = """
name: grasp
agent: {normalize_observations: true}
environment: {kind: robot, task: {name: grasp}, episode_s: 8.0, guard: {max_state_age_s: 0.5}}
"""


def test_the_quaternion_of_a_rotation():
    rng = np.random.default_rng(0)
    for _ in range(50):
        w, x, y, z = q = rng.normal(size=4)
        w, x, y, z = q / np.linalg.norm(q)
        matrix = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        found = np.array(quaternion(matrix))
        assert abs(found @ [w, x, y, z]) == pytest.approx(1.0)


def test_a_rehearsal_goes_like_its_simulation(own_host, loaded, tmp_path):
    pytest.importorskip("rtde_control")
    said = []
    plan = Plan(loaded, episodes=1, host=own_host(2), records=tmp_path, timeout_scale=5.0)
    report = Rehearsal(plan, said.append).run()
    json.dumps(report, allow_nan=False)
    assert said[0] == f"starting a simulated controller of the ur5e on {plan.host}"
    assert said[1].startswith("check: go")
    stages = [text.split(":")[0] for text in said]
    assert [stage for stage in stages if stage in ("shadow", "run", "plain simulation")] == [
        "shadow", "run", "plain simulation"
    ]  # fmt: skip
    assert report["arm"]["faults"] == []
    arm, simulation = report["arm"], report["simulation"]
    assert arm["ended"] == simulation["ended"] == {"time": 1}
    assert arm["mean_final_distance_m"] == pytest.approx(simulation["mean_final_distance_m"], abs=0.03)
    # By the stand-in's clock over 100 ms: arrivals 20 ms late, as on a busy computer, look a quarter faster. The exact
    # bound on what is sent is held by tests/robots/test_guard_laws.py.
    assert report["wire"]["targets"]["tcp_speed_m_s"] <= 1.25 * report["limits"]["tcp_speed_m_s"]
    assert report["shadow"]["steps"] == 40


@pytest.mark.slow
def test_a_rehearsal_with_a_fault_recovers_and_goes_on(own_host, loaded, tmp_path):
    pytest.importorskip("rtde_control")
    faults = tmp_path / "faults.yaml"
    faults.write_text(yaml.safe_dump({"faults": [{"kind": "protective_stop", "episode": 0, "at_s": 0.5}]}))
    plan = Plan(loaded, 2, host=own_host(3), records=tmp_path, faults=faults, timeout_scale=5.0)
    report = Rehearsal(plan, lambda text: None).run()
    assert report["arm"]["ended"] == {"fault": 1, "time": 1}
    (fault,) = report["faults"]
    assert fault["episode"] == 0
    assert "a protective stop holds the arm" in fault["said"]


def grasp_plan(tmp_path, write_checkpoint, **values):
    loaded = open_checkpoint(write_checkpoint(tmp_path / "policy", parse_config(GRASP, "test")))
    config = loaded.environment
    script = scripted_grasp(
        loaded.policy.contract.observation, config.task, config.action, robot_spec(config.robot),
        config.guard.max_tcp_speed_m_s,
    )  # fmt: skip
    return Plan(loaded, act=script.act, records=tmp_path / "records", timeout_scale=5.0, **values)


@pytest.mark.slow
def test_the_scripted_grasp_takes_objects_that_a_tracker_sees(own_host, write_checkpoint, tmp_path):
    pytest.importorskip("rtde_control")
    report = Rehearsal(grasp_plan(tmp_path, write_checkpoint, episodes=2, host=own_host(4)), print).run()
    assert report["arm"]["success_rate"] == report["simulation"]["success_rate"] == 1.0
    checked = {finding["name"]: finding for finding in report["check"]["findings"]}
    assert checked["camera rate"]["found"] == "60 frames a second, inside"
    assert checked["gripper speed"]["found"] == "100 %, inside"
    gripper = report["arm"]["gripper"]
    assert gripper["closings"] >= 2
    assert 0.5 < gripper["speed"] < 1.1
    assert gripper["trained_speed"] == [1.0, 1.0]


@pytest.mark.slow
def test_an_object_that_is_lost_is_a_failed_episode_and_no_fault(own_host, write_checkpoint, tmp_path):
    pytest.importorskip("rtde_control")
    faults = tmp_path / "faults.yaml"
    faults.write_text(yaml.safe_dump({"faults": [{"kind": "object_lost", "episode": 0, "at_s": 3.0, "for_s": 30.0}]}))
    plan = grasp_plan(tmp_path, write_checkpoint, episodes=1, host=own_host(5), faults=faults)
    report = Rehearsal(plan, print).run()
    assert report["arm"]["success_rate"] == 0.0
    assert report["arm"]["ended"] == {"time": 1}


@pytest.mark.slow
def test_a_policy_step_takes_half_a_millisecond_at_most(loaded):
    assert policy_step_ms(loaded.policy, loaded.environment)["p50"] < 0.5


def test_a_rehearsal_off_loopback_is_refused(loaded, tmp_path):
    with pytest.raises(ConfigError, match=r"can be reached by other computers"):
        Rehearsal(Plan(loaded, 1, host="192.168.0.10", records=tmp_path), print).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "robot", "cell"),
    [
        ("ur5e_reach", {"table_height_m": -0.0004, "coupling_thickness_m": 0.001}, "nominal"),
        ("ur5e_reach", {"table_height_m": 0.005, "coupling_thickness_m": 0.003}, "worn"),  # with 0.25 kg, 2 mm longer
        ("ur5e_grasp", {"table_height_m": -0.004, "coupling_thickness_m": 0.002}, "nominal"),
    ],
)
def test_a_released_policy_succeeds_in_a_cell_whose_geometry_was_measured(own_host, tmp_path, name, robot, cell):
    pytest.importorskip("rtde_control")
    loaded = open_checkpoint(Path(name))
    here = loaded.environment.robot.model_copy(update=robot)
    plan = Plan(
        loaded, 3, host=own_host(6), records=tmp_path, timeout_scale=5.0, preset=preset(cell), robot=here
    )  # fmt: skip
    report = Rehearsal(plan, print).run()
    assert report["arm"]["faults"] == []
    assert report["arm"]["success_rate"] == report["simulation"]["success_rate"] == 1.0
    table = next(each for each in report["check"]["findings"] if each["name"] == "contract: robot.table_height_m")
    assert (table["verdict"], table["found"]) == ("go", f"{robot['table_height_m']:g}")


@pytest.mark.thorough
def test_a_cell_that_training_does_not_cover_is_refused_with_the_command_that_trains_for_it(own_host, loaded, tmp_path):
    pytest.importorskip("rtde_control")
    here = loaded.environment.robot.model_copy(update={"table_height_m": -0.012})
    plan = Plan(loaded, 1, host=own_host(7), records=tmp_path, timeout_scale=5.0, robot=here)
    with pytest.raises(RobotError, match=r"robot\.table_height_m: -0\.012, 0\.012 apart, .*td3robot train ur5e_reach"):
        Rehearsal(plan, lambda text: None).run()


def test_eyes_need_something_to_see(loaded, tmp_path):
    pytest.importorskip("rtde_control")
    pytest.importorskip("cv2")
    with pytest.raises(ConfigError, match="the task has no object that a camera could see"):
        Rehearsal(Plan(loaded, 1, records=tmp_path, eyes=True), print).run()


def test_faults_of_a_tracker_are_refused_where_a_camera_sees(own_host, write_checkpoint, tmp_path):
    pytest.importorskip("rtde_control")
    pytest.importorskip("cv2")
    faults = tmp_path / "faults.yaml"
    faults.write_text(yaml.safe_dump({"faults": [{"kind": "tracker_silent", "at_s": 1.0}]}))
    plan = grasp_plan(tmp_path, write_checkpoint, episodes=1, host=own_host(6), faults=faults, eyes=True)
    with pytest.raises(ConfigError, match="tracker_silent is a fault of the poses that the simulator tells"):
        Rehearsal(plan, print).run()


@pytest.mark.slow
def test_a_grasp_by_what_a_camera_sees(own_host, write_checkpoint, tmp_path):
    pytest.importorskip("rtde_control")
    pytest.importorskip("cv2")
    said = []
    try:
        report = Rehearsal(
            grasp_plan(tmp_path, write_checkpoint, episodes=1, host=own_host(7), eyes=True), said.append
        ).run()
    except CameraError as error:
        pytest.skip(str(error))
    assert "camera: 480x360, 15 frames a second, 50 ms from exposure to frame" in said
    assert report["arm"]["success_rate"] == 1.0
    tracker = report["tracker"]
    assert tracker["error_mm"]["p50"] < 6.0 and tracker["seen"]["object"] > 0.3
    session = read_session(Path(report["record"]))
    assert session.tracker is not None and session.tracker.poses == tracker["poses"] > 20
