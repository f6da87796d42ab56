"""Pages and their servers: what they listen on, what they hand out, who may come; no browser is needed here."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from td3robot.build import robot_spec
from td3robot.cli import app
from td3robot.config import RobotConfig, RobotEnvironmentConfig
from td3robot.errors import ConfigError, MissingExtraError
from td3robot.metrics import time_chart
from td3robot.ports import LOOPBACK, free_port
from td3robot.state import JointCommand
from td3robot.view.source import Snapshot, Source, Workcell
from td3robot.view.viewer_process import ViewerProcess, forwarding_line, open_browser

WAIT_S = 60.0
linux = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")


class Resting(Source):
    title, kind = "resting", "an arm at rest"
    actions = frozenset({"play", "step", "next", "goal", "act", "jog"})
    controllers = ("nothing", "by hand")

    def __init__(self, arm="ur5e"):
        config = RobotEnvironmentConfig(robot=RobotConfig(arm=arm))
        self.workcell_ = Workcell(robot_spec(config.robot), (), config.guard.workspace)

    @property
    def workcell(self):
        return self.workcell_

    def advance(self):
        raise NotImplementedError


def resting(source):
    from td3robot.view.picture import at_home

    return Snapshot(at_home(source.workcell.spec), goal=np.array([0.1, 0.5, 0.2]))


def wait_until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def listening():
    """List the addresses that this process listens on."""
    own = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink() and path.exists()}
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path("/proc/net") / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                address = bytes.fromhex(local.partition(":")[0])
                words = [address[i : i + 4][::-1] for i in range(0, len(address), 4)]
                found.append(socket.inet_ntop(family, b"".join(words)))
    return found


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


@pytest.fixture
def server(tmp_path):
    from td3robot.view.swift_server import LoopbackSwift

    meshes = tmp_path / "meshes"
    meshes.mkdir()
    (meshes / "link.stl").write_bytes(b"solid")
    swift = LoopbackSwift(meshes)
    yield swift
    swift.close()


def test_swift_hands_out_its_page_and_the_meshes_and_nothing_else(server, tmp_path):
    page = f"http://{LOOPBACK}:{server.ports[0]}"
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (tmp_path / "meshes" / "link").symlink_to(secret)
    assert b"<html" in get(page)[1].lower()
    assert get(f"{page}/js/main.js")[0] == 200
    assert get(f"{page}/retrieve{tmp_path}/meshes/link.stl") == (200, b"solid")
    for path in (
        "/retrieve/etc/hostname",
        f"/retrieve{secret}",
        f"/retrieve{tmp_path}/meshes/../secret",
        f"/retrieve{tmp_path}/meshes/%2e%2e/secret",
        f"/retrieve{tmp_path}/meshes/link",
        f"/retrieve{tmp_path}/meshes",
        f"/retrieve{tmp_path}/meshes/none.stl",
        "/js/",
    ):
        assert get(page + path)[0] == 403, path
    assert get(f"{page}/../../../../etc/hostname")[0] in (403, 404)


@linux
def test_swift_listens_on_loopback_alone(server):
    found = listening()
    assert len(found) >= 2
    assert set(found) <= {"127.0.0.1", "::1"}


def test_swift_sends_a_second_tab_away_and_takes_one_that_comes_back(server):
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    address = f"ws://{LOOPBACK}:{server.ports[1]}"
    with connect(address) as first:
        first.send('{"event": "connected", "js_hashes": null}')
        wait_until(server.tab_came)
        assert server.has_tab
        with connect(address) as second, pytest.raises(ConnectionClosed) as closed:
            second.recv(timeout=WAIT_S)
        assert closed.value.rcvd.code == 1013
        assert server.has_tab
    wait_until(lambda: not server.has_tab)
    server.tab_left()
    with connect(address) as again:
        again.send('{"event": "connected", "js_hashes": null}')
        wait_until(server.tab_came)
        assert server.has_tab
        # A thread that waits here would keep the interpreter from ending once the servers have stopped.
        assert not server.outq.not_empty._waiters


def test_the_page_of_swift_waits_for_a_tab_and_for_nothing_else():
    from td3robot.view.swift_page import SwiftPage

    source = Resting()
    with closing(SwiftPage(source)) as page:
        assert not page.watched
        page.build(source.workcell)
        page.draw(resting(source))
        page.write(["words"])
        folder = Path(page._folder.name)
        assert list(folder.glob("*.stl"))
        assert page.url == f"http://localhost:{page.ports[0]}/?{page.ports[1]}"
    assert not folder.exists()


def test_sliders_of_swift_move_the_arm_only_once_somebody_chose_to_and_begin_where_it_is():
    from td3robot.view.swift_page import SwiftPage

    source = Resting()
    with closing(SwiftPage(source)) as page:
        page.build(source.workcell)
        snapshot = resting(source)
        page.draw(snapshot)
        page._sliders = [type("Slider", (), {"value": 0.0})() for _ in range(7)]
        page._moved(0, 10.0)
        assert page.events() == []
        page._choose("by hand")
        assert [event.action for event in page.events()] == ["act"]
        home = np.round(np.degrees(snapshot.state.q))
        assert [slider.value for slider in page._sliders] == [*home, 0.0]
        page._moved(0, home[0])  # the page repeats it
        assert page.events() == []
        page._moved(0, home[0] + 10.0)
        (event,) = page.events()
        assert event.action == "jog"
        np.testing.assert_allclose(np.degrees(event.value[0]), home + np.array([10.0, 0, 0, 0, 0, 0]))


@pytest.mark.parametrize("arm", ["ur5e", "ur3e"])  # meshes, and cylinders
def test_shapes_for_swift_are_where_the_model_has_them(tmp_path, arm):
    from td3robot.view.picture import Picture
    from td3robot.view.swift_page import part_poses, shapes_of

    picture = Picture(Resting(arm).workcell)
    shapes = shapes_of(picture, tmp_path)
    poses = part_poses(picture, [geom for geom, _ in shapes])
    assert len(shapes) == len(poses) > 5
    tool = picture.tool().position
    assert min(np.linalg.norm(pose.t - tool) for pose in poses) < 0.1


def test_a_mesh_is_written_as_stl(tmp_path):
    from td3robot.view.swift_page import write_stl

    path = tmp_path / "one.stl"
    write_stl(path, np.eye(3), np.array([[0, 1, 2]]))
    content = path.read_bytes()
    assert len(content) == 84 + 50
    np.testing.assert_array_equal(np.frombuffer(content[96:132], "<f4").reshape(3, 3), np.eye(3))


@pytest.fixture
def viser_page():
    pytest.importorskip("viser", reason="the extra view is not installed: pip install 'td3robot[view]'")
    from td3robot.view.viser_page import ViserPage

    source = Resting()
    with closing(ViserPage(source, LOOPBACK, free_port(LOOPBACK, None))) as page:
        yield source, page


@linux
def test_viser_listens_on_loopback_alone_and_opens_no_tunnel(viser_page):
    _, page = viser_page
    assert set(listening()) == {LOOPBACK}
    assert page._server.request_share_url() is None
    assert get(f"http://{LOOPBACK}:{page.ports[0]}")[0] == 200


def test_viser_shows_a_moment_curves_and_words_and_writes_nothing_to_standard_output(viser_page, capfd):
    source, page = viser_page
    page.build(source.workcell)
    snapshot = resting(source)
    page.draw(snapshot)
    page.write(["words"])
    chart = time_chart("Return", np.array([1.0, 2.0]), {"a": np.array([np.nan, 3.0])})
    page.plot([chart])
    page.plot([time_chart("Return", np.array([1.0, 2.0, 3.0]), {"a": np.array([1.0, 3.0, 4.0])})])
    assert len(page._charts["Return"][1].data[0]) == 3
    page.plot([])
    assert not page._charts
    assert not page.watched
    np.testing.assert_allclose(page._goal.position, snapshot.goal)
    assert page.events() == []
    assert capfd.readouterr().out == ""


def test_viser_shows_the_picture_of_a_trackers_camera(viser_page, monkeypatch):
    source, page = viser_page
    monkeypatch.setattr(source, "picture_url", "http://127.0.0.1:47301", raising=False)
    shown = []
    monkeypatch.setattr(page._server.gui, "add_html", shown.append)
    page.build(source.workcell)
    assert 'src="http://127.0.0.1:47301"' in shown[0]
    assert page._seeing.visible
    assert page.ports[1:] == [47301]


def test_the_ghost_is_placed_before_the_arm_is_flushed(viser_page, monkeypatch):
    source, page = viser_page
    page.build(source.workcell)
    snapshot = resting(source)
    moved = replace(snapshot, commanded=JointCommand(snapshot.state.q + 0.3, 0.0))
    found = []
    monkeypatch.setattr(
        page._scene,
        "update_from_mjdata",
        lambda data: found.append([tuple(ghost.position) for _, ghost in page._ghost]),
    )
    page.draw(moved)
    assert found == [[tuple(ghost.position) for _, ghost in page._ghost]]
    assert any(ghost.visible for _, ghost in page._ghost)


def test_curves_that_share_a_colour_differ_in_their_dashes(viser_page):
    _, page = viser_page
    seconds = np.array([1.0, 2.0])
    page.plot([time_chart("Rewards", seconds, {f"term {number}": seconds for number in range(12)})])
    drawn = {(line["stroke"], line["dash"]) for line in page._charts["Rewards"][1].series[1:]}
    assert len(drawn) == 12


class Tab:
    """A browser's tab that draws when it is told to."""

    def __init__(self):
        self.notices, self.asked, self.drawn, self.removed = [], threading.Event(), threading.Event(), threading.Event()

    def add_notification(self, title, body, **more):
        self.notices.append(body)
        return self

    def get_render(self, height, width, timeout):
        self.asked.set()
        assert self.drawn.wait(timeout)
        raise RuntimeError("the tab was closed")

    def remove(self):
        self.removed.set()


def test_a_tab_says_that_the_arm_is_loading_until_it_has_drawn_it(viser_page):
    source, page = viser_page
    tab = Tab()
    page._announce(tab)
    assert tab.notices == ["loading the arm ..."]
    assert not tab.asked.is_set()  # there is no arm yet
    page.build(source.workcell)
    assert tab.asked.wait(WAIT_S)
    assert not tab.removed.is_set()
    tab.drawn.set()
    assert tab.removed.wait(WAIT_S)


def test_in_a_window_higher_than_wide_the_first_camera_steps_back_and_looks_lower(viser_page, monkeypatch):
    source, page = viser_page
    phone = SimpleNamespace(camera=SimpleNamespace(aspect=0.46))
    monkeypatch.setattr(page._server, "get_clients", lambda: {0: phone})
    page.build(source.workcell)
    camera = page._server.initial_camera
    from td3robot.view.picture import camera_pose

    position, look = camera_pose(source.workcell, 1.0)
    assert np.linalg.norm(camera.position - camera.look_at) > 1.2 * np.linalg.norm(position - look)
    assert camera.look_at[2] < look[2]


def test_the_slider_of_a_record_counts_moments_as_the_words_do():
    pytest.importorskip("viser", reason="the extra view is not installed: pip install 'td3robot[view]'")
    from td3robot.view.viser_page import ViserPage

    source = Resting()
    source.actions = frozenset({"seek"})
    with closing(ViserPage(source, LOOPBACK, free_port(LOOPBACK, None))) as page:
        page.seek(161, 186)  # "Step 161 of 186" is in view
        assert (page._seeker.min, page._seeker.value, page._seeker.max) == (1, 161, 186)
        (moved,) = page._seeker._impl.update_cb
        moved(type("Event", (), {"client": object()})())
        (event,) = page.events()
        assert event == ("seek", 160)  # whose moment is the 161st


def test_axes_of_curves_hold_every_value_of_a_short_run_as_it_grows(viser_page, tmp_path):
    from td3robot.metrics import FollowedLog, run_charts

    _, page = viser_page
    rows = [f"{1000 * n},{n}.0,0.5\n" for n in range(1, 7)]
    for count, evaluations in ((1, 0), (3, 1), (6, 2)):
        (tmp_path / "metrics.csv").write_text("step,episode/return,reward/progress\n" + "".join(rows[:count]))
        (tmp_path / "evaluations.csv").write_text(
            "step,mean_return\n" + "".join(f"{3000 * n},{n}.0\n" for n in range(1, evaluations + 1))
        )
        followed = FollowedLog(tmp_path)
        followed.refresh()
        page.plot(run_charts([followed.log]))
        for _, handle in page._charts.values():
            for axis, values in (("x", handle.data[0]), ("y", np.concatenate(handle.data[1:]))):
                low, high = handle.scales[axis]["range"]
                assert low <= np.nanmin(values) <= np.nanmax(values) <= high
                assert low < high
    above, *_ = page._charts["Return"][1].padding
    assert above >= 8  # half the height of a label, which was cut off where it stood at the top
    low, high = page._charts["Return"][1].scales["x"]["range"]
    assert (low, high) == (1000.0, 6000.0)


def test_a_port_in_use_is_one_sentence_and_without_one_the_next_is_taken():
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} cannot be listened on"):
            free_port(LOOPBACK, port)
    first = free_port(LOOPBACK, None)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, first))
        other.listen()
        assert free_port(LOOPBACK, None) > first


def test_over_ssh_it_says_how_to_forward_the_ports():
    away = {"SSH_CONNECTION": "10.0.0.2 50000 10.0.0.9 22", "USER": "ann"}
    line = forwarding_line("http://127.0.0.1:8080", [8080, 53000], away)
    assert "ssh -N -L 8080:127.0.0.1:8080 -L 53000:127.0.0.1:53000 ann@10.0.0.9" in line
    assert "\n" not in line
    assert forwarding_line("http://127.0.0.1:8080", [8080], {}) == "view: http://127.0.0.1:8080"


def test_no_browser_is_one_sentence(monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "open the address yourself" in open_browser("http://127.0.0.1:8080")
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    assert open_browser("http://127.0.0.1:8080") is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ur5e_reach", "--with", "vizer"], "did you mean 'viser'"),
        (["ur5e_reach", "--with", "swift", "--port", "9000"], "for this computer alone"),
        (["ur5e_reach", "--with", "swift", "--allow-network"], "for this computer alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, sentence):
    result = CliRunner().invoke(app, ["view", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert sentence in str(result.exception)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("td3robot.errors.find_spec", lambda name: None)
    for command in (["view", "ur5e_reach"], ["train", "none.yaml", "--view"], ["rehearse", "none", "--view"]):
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, MissingExtraError), command
        assert "pip install 'td3robot[view]'" in str(result.exception)


@pytest.fixture
def has_viser():
    pytest.importorskip("viser", reason="the extra view is not installed: pip install 'td3robot[view]'")


def test_a_viewer_that_is_killed_is_one_sentence_and_a_closed_one_none(tmp_path, has_viser):
    said, told = [], threading.Event()
    with ViewerProcess(lambda sentence: (said.append(sentence), told.set())) as viewer:
        viewer.start(tmp_path)
        viewer._process.send_signal(signal.SIGKILL)
        assert told.wait(WAIT_S)
    assert said == ["the viewer was ended by signal 9; this command continues without it"]
    quiet = []
    with ViewerProcess(quiet.append) as viewer:
        viewer.start(tmp_path)
        process = viewer._process
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    assert process.poll() is not None
    assert quiet == []


def test_a_viewer_ends_with_the_program_that_started_it(tmp_path, has_viser):
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom td3robot.view.viewer_process import ViewerProcess\n"
        "viewer = ViewerProcess(print)\nviewer.start(Path(sys.argv[1]))\nprint(viewer._process.pid, flush=True)\n"
        "sys.stdin.read()\nos._exit(1)\n"
    )
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    parent.stdin.close()
    assert parent.wait(WAIT_S) == 1
    parent.stdout.close()
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
