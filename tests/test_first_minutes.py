"""What somebody new types first: the commands' list, names, demo, doctor, list, copy."""

import json
import subprocess
import sys
import webbrowser

import pytest
import typer
import yaml

from td3robot import catalog, cli, load_policy
from td3robot.cli.options import PANELS
from td3robot.config import load_config
from td3robot.errors import ConfigError, MissingExtraError, RobotError
from td3robot.policy.checkpoint import find
from td3robot.robots.cells import load_cell
from td3robot.robots.physical import Check

COMMANDS = typer.main.get_command(cli.app).commands


def test_alone_it_lists_the_commands_in_groups_and_exits_with_status_0(td3robot):
    status, out, err = td3robot()
    assert (status, err) == (0, "")
    places = [out.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)
    order = ("demo", "train", "eval", "inspect", "rehearse", "deploy", "recover", "export")
    shown = [out.index(f"\n  {name} ") for name in order]
    assert shown == sorted(shown)
    assert out == td3robot("--help")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_one_line_of_at_most_80_columns(td3robot, name):
    lines = [line for line in td3robot()[1].splitlines() if line.startswith(f"  {name} ")]
    assert len(lines) == 1
    assert len(lines[0]) <= 80
    assert COMMANDS[name].get_short_help_str(limit=200).removesuffix(".") in lines[0]
    assert COMMANDS[name].rich_help_panel in PANELS


def test_names_mean_what_comes_with_td3robot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(catalog.Path("ur5e_reach")) == load_config(catalog.configurations()["ur5e_reach"])
    assert load_cell(catalog.Path("ur5e_standin")) == load_cell(catalog.cells()["ur5e_standin"])
    assert find(catalog.Path("ur5e_grasp")) == catalog.policies()["ur5e_grasp"]
    assert load_policy("ur5e_reach").contract.terms["task"]["name"] == "reach"
    assert catalog.shown(catalog.policies()["ur5e_grasp"]) == "ur5e_grasp"
    assert catalog.shown(tmp_path / "ur5e_grasp") == str(tmp_path / "ur5e_grasp")


@pytest.mark.parametrize("name", catalog.policies())
def test_a_released_card_has_a_title_in_words_and_then_its_name(name):
    title = (find(catalog.Path(name)) / "README.md").read_text().splitlines()[0]
    assert title.startswith("# ")
    assert title.endswith(f" (`{name}`)")
    assert len(title.removeprefix("# ").removesuffix(f" (`{name}`)").split()) >= 3


def test_a_path_wins_over_a_name(tmp_path, monkeypatch, untrained):
    monkeypatch.chdir(tmp_path)
    untrained.rename(tmp_path / "ur5e_reach")
    assert find(catalog.Path("ur5e_reach")) == catalog.Path("ur5e_reach")
    (tmp_path / "gym_ant").write_text("name: mine\nenvironment: {kind: gymnasium, id: Pendulum-v1}\n")
    assert load_config(catalog.Path("gym_ant")).name == "mine"


@pytest.mark.parametrize("name", ["ur5e_reach", "ur5e", "gym_pendulum"])
def test_a_copy_says_what_the_original_says(td3robot, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    status, out, err = td3robot("copy", name)
    assert (status, out) == (0, "")
    assert f"wrote {name}.yaml" in err
    original = (catalog.configurations() | catalog.cells())[name]
    text = (tmp_path / f"{name}.yaml").read_text()
    assert yaml.safe_load(text) == yaml.safe_load(original.read_text())
    assert "$schema" not in text  # it would be relative to the original's place


def test_list_json_has_policies_configurations_cells_and_runs(td3robot, made):
    status, out, _ = td3robot("list", made.parent, "--json")
    found = json.loads(out)
    assert status == 0
    assert found.keys() == {"policies", "configurations", "cells", "runs"}
    assert {"ur5e_reach", "ur5e_grasp"} <= {row["name"] for row in found["policies"]}
    assert all(not row["resumable"] for row in found["policies"])
    (run,) = found["runs"]
    assert run == {
        "path": str(made), "name": "gym_pendulum", "title": "Pendulum-v1", "step": 60, "success_rate": None,
        "episodes": 1, "resumable": True,
    }  # fmt: skip


def test_list_tells_people_the_same(td3robot, made, tmp_path):
    status, out, err = td3robot("list", made.parent)
    assert (status, err) == (0, "")
    assert "UR5e with Robotiq 2F-85: reach a point" in out
    assert "resumable" in out
    assert str(made) in out.replace("\n", "")  # what is to be copied stays whole
    assert "No runs below" in td3robot("list", tmp_path / "none")[1]


def test_a_damaged_run_is_listed_with_what_is_known(td3robot, made, tmp_path):
    run = tmp_path / "runs" / "cut"
    (run / "last-000000007").mkdir(parents=True)
    (run / "last-000000007" / "manifest.json").write_text("{")
    status, out, err = td3robot("list", tmp_path, "--json")
    assert status == 0, err
    (row,) = json.loads(out)["runs"]
    assert (row["step"], row["name"], row["resumable"]) == (None, None, False)
    assert td3robot("list", tmp_path)[0] == 0


def test_doctor_looks_at_this_computer(td3robot, tmp_path):
    status, out, err = td3robot("doctor", "--json")
    found = json.loads(out)
    names = [finding["name"] for finding in found["findings"]]
    assert (status, found["ok"]) == (0, True), err
    for name in ("Python", "packages", "extra video", "rendering", "browser", "real-time scheduling", "disk"):
        assert name in names
    status, out, err = td3robot("doctor")
    assert (status, out) == (0, "")
    assert "td3robot can run here" in err


def test_doctor_says_which_command_mends_a_missing_extra(monkeypatch):
    from td3robot.cli import doctor

    monkeypatch.setattr(doctor, "installed", lambda needed: needed.name != "imageio-ffmpeg")
    check = Check()
    doctor._extras(check)
    (finding,) = [finding for finding in check.findings if finding.name == "extra video"]
    assert (finding.found, finding.advice) == ("not installed: imageio-ffmpeg", "pip install 'td3robot[video]'")
    assert finding.verdict == "optional"
    assert check.go


def test_doctor_says_no_go_without_a_required_package(monkeypatch):
    from td3robot.cli import doctor

    monkeypatch.setattr(doctor, "installed", lambda needed: needed.name != "gymnasium")
    check = Check()
    doctor._packages(check)
    assert not check.go
    assert check.findings[0].advice == "pip install 'gymnasium<2,>=1.1'"


def test_doctor_says_whether_the_controller_of_a_cell_answers(td3robot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cell.yaml").write_text("ur: {host: 127.0.0.253}\n")
    status, out, _ = td3robot("doctor", "--robot", "cell.yaml", "--json")
    asked = {row["name"]: row for row in json.loads(out)["findings"] if "127.0.0.253" in row["name"]}
    assert status == 0
    assert set(asked) == {
        f"{name} at 127.0.0.253:{port}" for name, port in (("RTDE", 30004), ("dashboard", 29999), ("gripper", 63352))
    }
    assert all(row["found"].startswith("no answer: Connection refused") for row in asked.values())


@pytest.fixture
def no_browser(monkeypatch):
    def get(*_):
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "get", get)


def demo_alone(out, before=""):
    """Run the demo in a process of its own, whose OpenGL nobody used before; gives status and standard error."""
    code = f"import sys\n{before}\nfrom td3robot.cli import main\nmain()"
    found = subprocess.run(
        [sys.executable, "-c", code, "demo", "--no-browser", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.stdout == ""
    return found.returncode, found.stderr


@pytest.mark.thorough
def test_demo_films_where_there_is_no_browser(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    status, err = demo_alone(tmp_path)
    assert status == 0, err
    assert (tmp_path / "td3robot-demo.mp4").stat().st_size > 10_000, err
    assert "lifted the cube and holds it" in err
    assert "td3robot train ur5e_reach_quick" in err


@pytest.mark.slow
def test_demo_draws_without_the_extra(tmp_path):
    status, err = demo_alone(tmp_path, "sys.modules['imageio'] = None")
    assert status == 0, err
    assert (tmp_path / "td3robot-demo.png").read_bytes().startswith(b"\x89PNG"), err
    assert not list(tmp_path.glob("*.mp4"))


def test_demo_tells_where_nothing_can_be_drawn(td3robot, tmp_path, monkeypatch, no_browser):
    from td3robot.robots.simulated import offscreen

    def no_opengl(*_):
        raise ConfigError("offscreen OpenGL does not work")

    monkeypatch.setitem(sys.modules, "imageio", None)
    monkeypatch.setattr(offscreen, "_gl_context", no_opengl)
    status, _, err = td3robot("demo", "--out", tmp_path / "other")
    assert status == 0, err
    assert " 0.0 s: the tool is" in err
    assert "lifted the cube and holds it" in err
    assert not list((tmp_path / "other").glob("*.png"))


def test_demo_opens_the_viewer_where_there_is_a_browser(td3robot, tmp_path, monkeypatch):
    import types

    shown = []
    monkeypatch.setattr(webbrowser, "get", lambda *_: object())
    viewing = types.SimpleNamespace(view=lambda target: shown.append(target))
    monkeypatch.setitem(sys.modules, "td3robot.cli.viewing", viewing)
    status, _, err = td3robot("demo", "--out", tmp_path)
    assert (status, shown) == (0, ["ur5e_grasp"])
    assert "td3robot train ur5e_reach_quick" in err
    assert not list(tmp_path.iterdir())


def test_rehearse_says_what_is_missing_before_anything_is_built(td3robot, tmp_path, monkeypatch):
    from td3robot.deploy import rehearsal

    def build(*_):
        raise AssertionError("something was built")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rehearsal, "start_session", build)
    monkeypatch.setitem(sys.modules, "rtde_control", None)
    status, out, err = td3robot("rehearse", "ur5e_reach")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "pip install 'td3robot[ur]'" in err
    assert not list(tmp_path.iterdir())


def test_deploy_says_what_is_missing_before_it_connects(monkeypatch, tmp_path):
    from td3robot.deploy.deployment import check_cell

    monkeypatch.setitem(sys.modules, "rtde_control", None)
    with pytest.raises(MissingExtraError, match=r"td3robot\[ur\]"):
        check_cell(None, load_cell(catalog.Path("ur5e")))


def test_a_rehearsal_takes_an_address_whose_ports_are_free():
    import socket

    from td3robot.simulators.process import free_host
    from td3robot.simulators.sessions import session_of

    lab = session_of("ur5e")
    first = free_host(lab.ports)
    with socket.socket() as taken:
        taken.bind((first, lab.ports[-1]))
        taken.listen()
        second = free_host(lab.ports)
    assert second != first
    assert second.startswith("127.0.0.")


def test_rehearsals_that_start_together_take_different_addresses(monkeypatch):
    from td3robot.simulators import process, sessions

    monkeypatch.setattr(process, "_is_free", lambda host, port: True)
    assert len({process.free_host(sessions.session_of("ur5e").ports) for _ in range(20)}) > 10


def test_without_a_free_address_it_says_so(monkeypatch):
    from td3robot.simulators import process, sessions

    monkeypatch.setattr(process, "_is_free", lambda host, port: False)
    with pytest.raises(RobotError, match=r"no address from 127\.0\.0\.2"):
        process.free_host(sessions.session_of("ur5e").ports)
