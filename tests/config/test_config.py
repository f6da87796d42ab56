"""The configuration is strict and whole, and its errors say what, the value, and what to do."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from td3robot.config import (
    DISTURBANCES,
    ActionConfig,
    RobotConfig,
    RobotEnvironmentConfig,
    load_config,
    parse_config,
    to_yaml,
)
from td3robot.config.durations import in_seconds
from td3robot.config.objects import ObjectConfig
from td3robot.errors import ConfigError
from td3robot.robots.arms import ARMS
from td3robot.tasks.grasp import GraspConfig

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
REACH = Path(__file__).parents[2] / "configs" / "ur5e_reach_quick.yaml"
GRASP = Path(__file__).parents[2] / "configs" / "ur5e_grasp_quick.yaml"
MINIMAL = "name: x\nenvironment: {kind: robot}\n"


def refusal(*overrides: str, text: str = MINIMAL) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_loads_and_round_trips(path):
    config = load_config(path)
    assert config.name == path.stem
    assert parse_config(to_yaml(config), "again") == config
    assert to_yaml(parse_config(to_yaml(config), "again")) == to_yaml(config)


def test_the_registered_reach_environment_is_the_trained_one():
    assert load_config(REACH).environment == RobotEnvironmentConfig()


def test_the_registered_grasp_environment_is_the_trained_one_undisturbed():
    trained = load_config(GRASP).environment.model_copy(update={"disturbance": DISTURBANCES["off"]})
    action, task = ActionConfig(exponent=3.0), GraspConfig()
    robot = RobotConfig(physics_rate_hz=260.0)
    assert trained == RobotEnvironmentConfig(robot=robot, task=task, action=action, episode_s=12.0)


def test_a_written_configuration_spells_out_every_default():
    values = yaml.safe_load(to_yaml(parse_config(MINIMAL, "x.yaml")))
    assert values["agent"]["policy_freq"] == 2
    assert values["environment"]["guard"]["max_tcp_speed_m_s"] == 0.25


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError):
        parse_config(MINIMAL, "x.yaml").agent.gamma = 0.5


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("agent.gama=0.9", "unknown key 'agent.gama'; did you mean 'gamma'?"),
        ("trainig.steps=5", "unknown key 'trainig'; did you mean 'training'?"),
        (
            "environment.guard.clearence_m=0.1",
            "unknown key 'environment.guard.clearence_m'; did you mean 'clearance_m'?",
        ),
        (
            "environment.task.rewards.precison=1",
            "'environment.task.rewards.precison'; did you mean 'precision'?",
        ),
        ("agent.zzz=1", "unknown key 'agent.zzz' (known here: asymmetric_critic, average_tau,"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(override, words):
    assert words in refusal(override)


def test_an_unknown_key_of_a_gymnasium_environment_is_refused_with_the_nearest():
    text = "name: x\nenvironment: {kind: gymnasium, id: Pendulum-v1, kwarg: {}}"
    assert "unknown key 'environment.kwarg'; did you mean 'kwargs'?" in refusal(text=text)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.steps=many", "training.steps is 'many', but it should be a whole number"),
        ("training.steps=1.5", "training.steps is 1.5, but it should be a whole number"),
        ("training.steps=0", "training.steps is 0, but it should be greater than 0"),
        ("agent.gamma=1", "agent.gamma is 1, but it should be less than 1"),
        ("agent.tau=0", "agent.tau is 0, but it should be greater than 0"),
        ("agent.tau=.nan", "agent.tau is nan, but it should be"),
        ("agent.policy_noise=.inf", "agent.policy_noise is inf, but it should be a finite number"),
        ("agent.policy_noise=", "agent.policy_noise is None, but it should be a number"),
        ("agent.hidden=[]", "agent.hidden is a "),
        ("agent.hidden=[64,-1]", "agent.hidden.1 is -1, but it should be greater than 0"),
        ("agent.hidden=64", "agent.hidden is 64, but it should be a list in brackets"),
        ("agent.layer_norm=maybe", "agent.layer_norm is 'maybe', but it should be true or false"),
        ("agent=5", "agent is 5, but it should be a valid dictionary"),
        ("agent.kind=[td3]", "unknown kind"),
        ("environment.task.name=[reach]", "unknown name"),
        ("environment.robot.arm=[ur5e]", "environment.robot.arm is ['ur5e'], but it should be a text"),
        ("environment.task.goals.low=[0,0]", "environment.task.goals.low.2 is missing"),
        ("seed=-1", "seed is -1, but it should be greater than or equal to 0"),
        ("name=a b", "name is 'a b', but "),
        ("name=../out", "name is '../out', but "),
    ],
)
def test_a_value_of_wrong_type_or_range_is_named_with_what_it_should_be(override, words):
    assert words in refusal(override)


def test_a_number_in_scientific_notation_is_a_number():
    assert parse_config(MINIMAL, "x.yaml", ["agent.tau=1e-3"]).agent.tau == 0.001


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "environment.robot.backend=mujoko",
            ("'mujoko'", "did you mean 'mujoco'?", "(choices: franka, kinematic, mujoco, ur)"),
        ),
        ("environment.robot.arm=ur5ee", ("'ur5ee'", "did you mean 'ur5e'?", "(choices: ")),
        ("environment.robot.arm=ur5", ("the UR5 of the CB3 series is not driven", "for example the ur5e")),
        ("environment.robot.gripper=hand", ("'hand'", "(choices: ", "robotiq_2f85")),
        (
            "environment.robot.gripper=robotiq_2f14",
            ("unknown gripper 'robotiq_2f14'; did you mean 'robotiq_2f140'?", "robotiq_hand_e"),
        ),
        ("environment.task.name=raech", ("'raech'", "did you mean 'reach'?", "(choices: ")),
        ("environment.action.kind=tcp_dleta", ("'tcp_dleta'", "did you mean 'tcp_delta'?", "joint_delta")),
        ("environment.kind=gym", ("environment.kind", "'gym'", "(choices: gymnasium, robot)")),
        ("agent.device=gpu", ("agent.device", "'gpu'", "auto", "cpu", "cuda")),
    ],
)
def test_an_unknown_choice_lists_the_choices(override, words):
    sentence = refusal(override)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["environment.robot.control_rate_hz=30"],
            "control period 33.3333 ms is not a multiple of the physics step 2.5 ms",
        ),
        (
            ["environment.robot.control_rate_hz=500"],
            "choose physics_rate_hz as a multiple of control_rate_hz",
        ),
        (["environment.robot.physics_rate_hz=100"], "physics_rate_hz 100 is outside [250, 2000]"),
        (
            ["environment.task.goals={low: [0.5, 0.25, 0.05], high: [0.3, 0.75, 0.45]}"],
            "environment.task.goals: the box is empty along x: low 0.5 m is not below high 0.3 m",
        ),
        (
            ["environment.guard.workspace={low: [-0.6, 0.15, 0.02], high: [0.6, 0.15, 0.8]}"],
            "environment.guard.workspace: the box is empty along y: low 0.15 m is not below high 0.15 m",
        ),
        (
            ["environment.task.goals={low: [-0.3, 0.25, 0.05], high: [0.3, 0.75, 0.9]}"],
            "task.goals (-0.3, 0.25, 0.05)..(0.3, 0.75, 0.9) m reaches outside guard.workspace",
        ),
        (
            ["environment.guard.workspace={low: [-0.1, 0.15, 0.02], high: [0.6, 0.95, 0.8]}"],
            "reaches outside guard.workspace (-0.1, 0.15, 0.02)..(0.6, 0.95, 0.8) m",
        ),
        (["environment.episode_s=0.1"], "an episode of 0.1 s is shorter than task.hold_s 0.25 s"),
        (
            ["agent.batch_size=10", "agent.replay_capacity=5"],
            "agent.replay_capacity 5 is smaller than agent.batch_size 10",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_numbers(overrides, words):
    assert words in refusal(*overrides)


GRASPING = "name: x\nenvironment: {kind: robot, task: {name: grasp}}\n"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["object.size_m=[0.081, 0.09, 0.04]"],
            "environment.task.object: the object is 81 mm wide where it is gripped, and the jaw takes at most 80 mm",
        ),
        (["object={shape: cylinder, size_m: [0.1, 0.1, 0.1]}"], "the object is 100 mm wide where it is gripped"),
        (
            ["object.size_m=[0.04, 0.04, 0.019]"],
            "the object is 19 mm high, and the fingers grasp nothing lower than 20",
        ),
        (
            ["object.size_m=[0.04, 0.04, 0.121]"],
            "the object is 121 mm high, and the fingers reach down to the middle of at most 120 mm",
        ),
        (["object.size_m=[0.014, 0.1, 0.04]"], "the object is 14 mm wide where it is gripped, and below 15 mm"),
        (["object.size_m=[0.04, -0.04, 0.04]"], "has an extent that is not positive"),
        (
            ["object={shape: cylinder, size_m: [0.04, 0.05, 0.04]}"],
            "a cylinder's first two extents are its diameter, but 0.04 m and 0.05 m differ",
        ),
        (["object.mass_kg=5.1"], "the object's 5.1 kg are above the gripper's payload of 5 kg"),
        (["object.mass_kg=0"], "environment.task.object.mass_kg is 0, but it should be greater than 0"),
        (["object.shape=ball"], "'ball'"),
        (
            ["patch_low=[0.3, 0.35]"],
            "environment.task: the patch is empty along x: patch_low 0.3 m is not below patch_high 0.2 m",
        ),
        (["start_height_m=[0.3, 0.2]"], "(0.3, 0.2) is no range"),
        (
            ["start_height_m=[0.05, 0.2]"],
            "starts from 0.05 m above the table, with its fingers inside an object of 0.04 m; raise start_height_m to "
            "0.06 m or more",
        ),
        (
            ["patch_high=[0.51, 0.65]"],
            "the patch goes from x -0.2 to 0.51 m, and the table only from -0.5 to 0.5 m: objects would fall off",
        ),
        (
            ["patch_low=[-0.2, 0.1]"],
            "the task's patch, with start and lift above it, (-0.2, 0.1, 0.026)..(0.2, 0.65, 0.3) m reaches outside "
            "guard.workspace (-0.6, 0.15, 0.02)..(0.6, 0.95, 0.8) m",
        ),
        (["lift_height_m=0.9"], "reaches outside guard.workspace"),
        (["hold_s=8.05"], "an episode of 5 s is shorter than task.hold_s 8.05 s"),
        (["rewards.lifts=1"], "unknown key 'environment.task.rewards.lifts'; did you mean 'lift'?"),
    ],
)
def test_an_object_or_a_patch_that_cannot_be_is_refused_in_one_sentence(overrides, words):
    assert words in refusal(*(f"environment.task.{override}" for override in overrides), text=GRASPING)


@pytest.mark.parametrize(
    ("gripper", "size", "words"),
    [
        (
            "robotiq_hand_e",
            "[0.046, 0.05, 0.04]",
            "the object is 46 mm wide where it is gripped, and the jaw takes at mo",
        ),
        (
            "robotiq_hand_e",
            "[0.007, 0.05, 0.04]",
            "is 7 mm wide where it is gripped, and below 8 mm the gripper's driver",
        ),
        (
            "robotiq_hand_e",
            "[0.03, 0.03, 0.07]",
            "70 mm high, and the fingers reach down to the middle of at most 64 mm",
        ),
        (
            "robotiq_2f140",
            "[0.136, 0.2, 0.1]",
            "the object is 136 mm wide where it is gripped, and the jaw takes at most",
        ),
        ("robotiq_2f140", "[0.03, 0.03, 0.018]", "is 18 mm high, and the fingers grasp nothing lower than 19 mm"),
        (
            "robotiq_2f140",
            "[0.12, 0.12, 0.03]",
            "is 30 mm high, and the fingers grasp nothing that is 120 mm wide lower than 34.7 mm",
        ),
    ],
)
def test_an_object_that_does_not_fit_the_gripper_is_refused_in_one_sentence(gripper, size, words):
    overrides = f"environment.robot.gripper={gripper}", f"environment.task.object.size_m={size}"
    assert words in refusal(*overrides, text=GRASPING)


@pytest.mark.parametrize(
    ("payload_kg", "words"),
    [
        (
            0.9,
            "environment.robot.gripper: the gripper 'robotiq_2f85' weighs 0.925 kg, and the arm 'ur5e' may carry at "
            "most 0.9 kg; choose a lighter gripper or a stronger arm",
        ),
        (
            1.0,
            "an object of 0.1 kg in a gripper of 0.925 kg is above the arm's payload of 1 kg; choose a lighter object",
        ),
    ],
)
def test_what_an_arm_cannot_carry_is_refused_in_one_sentence(monkeypatch, payload_kg, words):
    weak = replace(ARMS["ur5e"], payload_kg=payload_kg)
    monkeypatch.setattr("td3robot.config.run.ARMS", {"ur5e": weak})
    assert words in refusal(text=GRASPING)


def test_an_object_as_wide_as_the_jaw_takes_and_a_long_one_across_it_are_not_refused():
    assert ObjectConfig(size_m=(0.08, 0.08, 0.04)).grip_width_m == 0.08
    assert ObjectConfig(size_m=(0.2, 0.03, 0.04)).grip_width_m == 0.03


def test_the_workspace_of_a_grasp_begins_below_its_lowest_grasp():
    lower = "environment.robot.table_height_m=-0.1"
    assert parse_config(GRASPING, "x.yaml", [lower]).environment.guard.workspace.low == (-0.6, 0.15, -0.08)
    large = ["environment.robot.arm=ur10e", "environment.robot.gripper=robotiq_2f140"]
    assert parse_config(GRASPING, "x.yaml", large).environment.guard.workspace.low[2] == 0.035
    assert parse_config(MINIMAL, "x.yaml", large).environment.guard.workspace.low[2] == 0.02


def test_a_patch_on_a_table_below_the_workspace_is_refused():
    lower = "environment.robot.table_height_m=-0.1"
    higher = "environment.guard.workspace={low: [-0.6, 0.15, 0.02], high: [0.6, 0.95, 0.8]}"
    assert "0.35, -0.074)..(0.2, 0.65, 0.2) m reaches outside guard.workspace" in refusal(lower, higher, text=GRASPING)


@pytest.mark.parametrize("text", ["off", "false", "'off'"])
def test_no_disturbance_is_a_bare_off_which_yaml_reads_as_false(text):
    config = parse_config(GRASPING, "x.yaml", [f"environment.disturbance={text}"])
    assert config.environment.disturbance == DISTURBANCES["off"]


@pytest.mark.parametrize("level", DISTURBANCES)
def test_a_level_of_disturbance_is_written_out_and_read_back(level):
    config = parse_config(MINIMAL, "x.yaml", [f"environment.disturbance={level}"])
    assert config.environment.disturbance == DISTURBANCES[level]
    assert parse_config(to_yaml(config), "again") == config


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["disturbance=rael"], "unknown disturbance 'rael'; did you mean 'real'? (choices: mild, off, real)"),
        (["disturbance=rael", "disturbance.camera_drop=0.2"], "'disturbance' is a value, not a section"),
        (["disturbance=real", "disturbance.camera_dorp=0.2"], "did you mean 'camera_drop'?"),
        (["disturbance=on"], "environment.disturbance is True, but it should be a valid dictionary"),
        (
            ["disturbance={object_noise: 0.1}"],
            "unknown key 'environment.disturbance.object_noise'; did you mean 'object_noise_m'?",
        ),
        (["disturbance={servo_lag: [1.3, 0.7]}"], "environment.disturbance.servo_lag: (1.3, 0.7) is no range"),
        (["disturbance={action_delay_s: [-1, 2]}"], "disturbance.action_delay_s.0 is -1, but it should be"),
        (
            ["disturbance={observation_delay_s: [0, 0.16]}", "robot={control_rate_hz: 25}"],
            "disturbance.observation_delay_s (0.0, 0.16) makes states 0.16 s old",
        ),
        (
            ["disturbance={observation_delay_s: [0, 0.15]}"],
            "disturbance.observation_delay_s (0.0, 0.15) makes states 0.15 s old, and the guard refuses them from "
            "guard.max_state_age_s 0.15 s on",
        ),
        (
            ["disturbance=real", "task.object.size_m=[0.075, 0.075, 0.04]"],
            "disturbance.object_scale (0.9, 1.1) makes the object 82.5 mm wide where it is gripped, and the jaw takes "
            "at most 80 mm",
        ),
        (
            ["disturbance={object_mass_kg: [0.1, 6]}"],
            "disturbance.object_mass_kg (0.1, 6.0) is above the gripper's payload of 5 kg",
        ),
    ],
)
def test_a_disturbance_that_cannot_be_is_refused_in_one_sentence(overrides, words):
    assert words in refusal(*(f"environment.{override}" for override in overrides), text=GRASPING)


@pytest.mark.parametrize("level", ["off", "mild", "real"])
def test_one_value_of_a_level_can_be_another(level):
    overrides = f"environment.disturbance={level}", "environment.disturbance.camera_drop=0.3"
    config = parse_config(GRASPING, "x.yaml", overrides)
    assert config.environment.disturbance == DISTURBANCES[level].model_copy(update={"camera_drop": 0.3})


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("agent.gamma", "--set 'agent.gamma' is not of the form section.key=value"),
        ("=3", "--set '=3' is not of the form section.key=value"),
        ("name.first=x", "--set name.first: 'name' is a value, not a section"),
        ("agent.gamma=[1", "--set agent.gamma: '[1' is not a YAML value"),
        ("agent..gamma=1", "agent."),
    ],
)
def test_a_bad_override_is_refused(override, words):
    assert words in refusal(override)


def test_overrides_reach_sections_that_the_file_leaves_out_and_the_last_wins():
    config = parse_config(MINIMAL, "x.yaml", ["environment.task.rewards.guard=0.3", "seed=3", "seed=4"])
    default = RobotEnvironmentConfig().task.rewards
    assert config.environment.task.rewards == default.model_copy(update={"guard": 0.3})
    assert config.seed == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [x", "x.yaml is not valid YAML"),
        ("- name", "x.yaml must hold a mapping of sections, not list"),
        ("", "x.yaml must hold a mapping of sections, not NoneType"),
        ("name: x", "environment is missing"),
        ("environment: {kind: robot}", "name is missing"),
        ("name: x\nenvironment: {}", "environment.kind is missing (choices: gymnasium, robot)"),
        ("name: x\nenvironment: {kind: gymnasium}", "environment.id is missing"),
        ("name: x\nenvironment: 5", "environment is 5, but it should be a valid dictionary"),
        ("name: x\nenvironment: {kind: robot}\n3: 4", "holds the key '3' of type int; keys are texts"),
        ("name: x\nagent:\nenvironment: {kind: robot}", "agent is None, but it should be a valid dictionary"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused(text, words):
    assert words in refusal(text=text)


def test_code_in_yaml_does_not_run(tmp_path):
    text = f"name: !!python/object/apply:os.mkdir ['{tmp_path / 'ran'}']"
    assert "is not valid YAML" in refusal(text=text)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin.yaml").write_bytes("name: größe".encode("latin-1"))
    for path, words in (
        (tmp_path / "none.yaml", "there is no configuration"),
        (tmp_path, "cannot be read"),
        (tmp_path / "latin.yaml", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(path)


def test_a_damping_ratio_of_an_older_run_is_a_factor_now():
    values = {"environment": {"disturbance": {"servo_damping": [0.5, 1.5]}}}
    assert in_seconds(values) == ["environment.disturbance.servo_damping"]
    assert values["environment"]["disturbance"] == {"servo_damping_factor": [0.58, 1.73]}
    values = {"environment": {"disturbance": {"servo_damping": None}}}
    in_seconds(values)
    assert values["environment"]["disturbance"] == {"servo_damping_factor": [1.0, 1.0]}
