from importlib.util import find_spec
from pathlib import Path

import pytest

from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.errors import ConfigError
from td3robot.robots.cells import CELLS, CellConfig, load_cell

FILES = sorted((Path(__file__).parents[2] / "configs" / "robots").glob("*.yaml"))
HOST = "ur: {host: 127.0.0.9}\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "cell.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_cells_that_come_along_are_those_of_training(path):
    cell = load_cell(path)
    assert isinstance(cell, CELLS[cell.robot.backend])
    kit = {"arm": cell.robot.arm, "gripper": cell.robot.gripper}
    if kit["arm"] == "fr3" and find_spec("franky_sim") is None:
        pytest.skip("the FR3's model is in the extra 'franka', which is not installed")
    config = RobotEnvironmentConfig.model_validate({"robot": kit})
    driven, simulated = (make_robot_env(config, cell=chosen) for chosen in (cell, None))
    assert list(driven.contract().differences(simulated.contract())) == []


def test_a_cell_needs_no_more_than_a_host(written):
    cell = load_cell(written(HOST))
    assert (cell.ur.host, cell.ur.rtde_rate_hz, cell.gripper.port, cell.tracker) == ("127.0.0.9", 125, 63352, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("robot: {backend: ur}\n", "ur is missing"),
        ("ur: {hots: a}\n", "unknown key 'ur.hots'; did you mean 'host'"),
        (HOST + "griper: {}\n", "unknown key 'griper'; did you mean 'gripper'"),
        (HOST + "tracker: {prot: 1}\n", "unknown key 'tracker.prot'; did you mean 'port'"),
        (HOST + "tracker: {kind: upd}\n", "tracker.kind: unknown kind 'upd'; did you mean 'udp'"),
        (HOST + "tracker: {kind: udp, prot: 1}\n", "unknown key 'tracker.prot'; did you mean 'port'"),
        (HOST + "taught: {object: {position_m: [1, 2]}}\n", "taught.object.position_m"),
        ("ur: {host: a, rtde_rate_hz: 250}\n", "ur.rtde_rate_hz"),
        (HOST + "robot: {backend: ur, servo_lookahead_s: 0.5}\n", "robot.servo_lookahead_s is 0.5"),
        ("ur: {host: a, gain: 300}\n", "cell.ur.gain is gone: it is robot.servo_gain, which training simulates, too"),
        ("ur: {host: a, watchdog_hz: 60}\n", "watchdog_hz 60 leaves less than four targets of rtde_rate_hz 125"),
        (HOST + "gripper: {open_count: 200}\n", "closed_count 230 is not well above open_count 200"),
        (
            HOST + "robot: {backend: mujoco}\n",
            "robot.backend is 'mujoco', but a cell's arm is driven by 'franka' or 'ur'",
        ),
        ("franka: {}\n", "franka.host is missing"),
        ("franka: {host: a, fraction: 1.0}\n", "franka.fraction is 1.0"),
        ("franka: {host: a, realtime: no}\n", "franka.realtime"),
        ("tracker: {}\n", "robot.backend is missing; it says who drives the cell's arm (choices: franka, ur)"),
        (HOST + "tracker: {}\ntaught: {object: {position_m: [0, 0, 0]}}\n", "tracker and taught both say"),
        ("- 1\n", "must hold a mapping of sections, not list"),
        ("a: [\n", "is not valid YAML"),
    ],
)
def test_what_cannot_be_a_cell_is_said(written, text, message):
    with pytest.raises(ConfigError) as error:
        load_cell(written(text))
    assert message in str(error.value)


def test_a_cell_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no cell .*nothing\.yaml .*a name: fr3, ur5e"):
        load_cell(tmp_path / "nothing.yaml")


@pytest.mark.parametrize("text", [HOST, HOST + "robot: {backend: ur}\n"])
def test_a_cell_is_of_the_kind_of_its_backend(written, text):
    cell = load_cell(written(text))
    assert type(cell) is CELLS["ur"]
    assert type(CellConfig.model_validate(cell.model_dump())) is CELLS["ur"]


def test_a_path_in_a_cell_starts_at_its_folder_or_at_home(tmp_path, monkeypatch):
    (tmp_path / "cells").mkdir()
    file = tmp_path / "cells" / "a.yaml"
    (tmp_path / "elsewhere").mkdir()
    for given, meant in (
        ("arm.yaml", tmp_path / "cells" / "arm.yaml"),
        ("../arm.yaml", tmp_path / "cells" / ".." / "arm.yaml"),
        ("~/arm.yaml", tmp_path / "elsewhere" / "arm.yaml"),
        ("/arm.yaml", Path("/arm.yaml")),
        ("nominal", "nominal"),
    ):
        file.write_text(f"ur: {{host: h, calibration: {given}}}\n")
        monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
        monkeypatch.chdir(tmp_path)
        assert load_cell(Path("cells/a.yaml")).ur.calibration == meant
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert load_cell(file).ur.calibration == meant
