"""The cell in the browser through viser and mjviser, with curves and controls beside it."""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import viser
from mjviser import ViserMujocoScene
from mjviser.conversions import merge_geoms
from rich import get_console
from viser import uplot

from td3robot.format import joint_name
from td3robot.metrics import COLORS, Chart
from td3robot.ports import LOOPBACK
from td3robot.state import Array
from td3robot.view.picture import Picture, camera_pose
from td3robot.view.show import Page, UiEvent, guard_line
from td3robot.view.source import Snapshot, Source, Workcell

GHOST, GOAL, TRAIL, CHANGED, WALLS = (40, 120, 255), (22, 163, 74), (37, 99, 235), (220, 38, 38), (245, 158, 11)
GOAL_RADIUS_M = 0.02
# Smallest visible distance between commanded and measured poses; closer surfaces would flicker [m].
SAME_M = 0.003
# How far the floor is below the table's top, which is 40 mm thick [m].
FLOOR_M = 0.045
# Points of the tool's trail, and how often it is redrawn, in frames.
TRAIL_POINTS, TRAIL_EVERY = 120, 3
# In a window that is higher than wide: the camera's distance, in diagonals of the workspace, times width over height,
# and how far below the workspace it looks, in its distances.
PORTRAIT, PORTRAIT_BELOW = 0.7, 0.2
# How long a tab shows that the arm is loading, at most [s].
LOADING_S = 120.0
# Around a curve: above, so that half a label fits; right, as the page has it [pixels].
PADDING = (10, 24, 0, 0)
NO_PICTURE = "no picture: the tracker has ended, or its port is not forwarded to this computer"
PLAY = "Play"
BUTTONS = {"play": "Pause", "step": "Step", "next": "Next episode"}
ACTION_OF = {PLAY: "play"} | {name: action for action, name in BUTTONS.items()}
SPEEDS = ("0.1x", "0.25x", "0.5x", "1x", "2x", "4x")
LEGEND = (
    "Solid: the arm as measured. Blue and translucent: {ghost}. "
    "Green: the goal. Line: the tool's way, red where the guard held back. Orange: the guard's workspace."
)


class ViserPage(Page):
    """A page for any number of tabs; nothing waits for them.

    Args:
        source: The source to show; its actions determine the controls.
        host: Address to listen on.
        port: Port to listen on, which must be free.
    """

    def __init__(self, source: Source, host: str, port: int) -> None:
        get_console().quiet = True  # viser announces itself on standard output, which is for figures
        logging.getLogger("websockets").setLevel(logging.CRITICAL)
        self._server: Any = viser.ViserServer(host=host, port=port, label="td3robot", verbose=False)
        _keep_private(self._server)
        self._source = source
        self._events: SimpleQueue[UiEvent] = SimpleQueue()
        self._charts: dict[str, tuple[tuple[str, ...], Any]] = {}
        self._trail: deque[tuple[Array, bool]] = deque(maxlen=TRAIL_POINTS)
        self._frames, self._dragged = 0, False
        self._lines: tuple[str, ...] = ()
        self._picture: Picture | None = None
        self._add_controls()
        self._built = Event()
        self._server.on_client_connect(self._announce)

    @property
    def url(self) -> str:
        """Its address on this computer."""
        return f"http://{LOOPBACK}:{self.ports[0]}"

    @property
    def ports(self) -> Sequence[int]:
        """The port it listens on, and that of the camera's picture."""
        picture = urlsplit(self._source.picture_url).port
        return [int(self._server.get_port()), *([picture] if picture else [])]

    @property
    def watched(self) -> bool:
        """Whether a tab is open."""
        return bool(self._server.get_clients())

    def build(self, workcell: Workcell) -> None:
        """Show arm, table, objects and workspace, and the first camera."""
        self._picture = picture = Picture(workcell)
        scene = self._server.scene
        camera = self._server.initial_camera
        shapes = [client.camera.aspect for client in self._server.get_clients().values()]
        camera.position, camera.look_at = first_pose(workcell, max(shapes, default=1.0))
        camera.fov = np.radians(45.0)
        self._scene = ViserMujocoScene(self._server, picture.model, num_envs=1)
        self._scene.camera_tracking_enabled = False
        scene.configure_environment_map("studio", environment_intensity=0.35)
        scene.add_grid(
            "/floor", width=8.0, height=8.0, cell_size=0.25, section_size=1.0, cell_color=(232, 234, 238),
            section_color=(208, 212, 220), shadow_opacity=0.0,
            position=(0.0, 0.0, workcell.spec.table_height_m - FLOOR_M),
        )  # fmt: skip
        self._add_ghost(picture)
        self._add_walls(workcell)
        self._goal = self._add_goal(workcell)
        self._draw_arm()
        if "jog" in self._source.actions:
            self._add_sliders(workcell)
        if self._source.picture_url:
            self._add_picture(self._source.picture_url)
        self._built.set()

    def draw(self, snapshot: Snapshot) -> None:
        """Show a moment."""
        picture = self._picture
        if picture is None:
            return
        picture.place(snapshot)
        with self._server.atomic():
            self._draw_goal(snapshot.goal)
            self._draw_trail(snapshot)
            self._draw_arm()  # last: it flushes, and what follows would reach a slow browser a frame later
        self._ruling = guard_line(snapshot.reasons) if snapshot.commanded is not None else ""

    def write(self, lines: Iterable[str]) -> None:
        """Show lines of text, and what the guard did."""
        words = (*lines, *([self._ruling] if getattr(self, "_ruling", "") else []))
        if words != self._lines:
            self._lines = words
            self._words.content = "  \n".join(words)

    def plot(self, charts: list[Chart]) -> None:
        """Show curves, and remove those that are gone."""
        for title in self._charts.keys() - {chart.title for chart in charts}:
            self._charts.pop(title)[1].remove()
        for chart in charts:
            names, handle = self._charts.get(chart.title, ((), None))
            labels, data = tuple(series.label for series in chart.series), _columns(chart)
            if handle is not None and names == labels:
                if not all(map(np.array_equal, handle.data, data)):
                    handle.data, handle.scales = data, _scales(chart, data)
                continue
            if handle is not None:
                handle.remove()
            with self._curves:
                self._charts[chart.title] = labels, self._add_chart(chart, data)

    def events(self) -> list[UiEvent]:
        """Return the actions in any tab since the last call."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except Empty:
                return found

    def seek(self, position: int, length: int) -> None:
        """Move the slider of a record."""
        if "seek" in self._source.actions and length > 1 and not self._events.qsize():
            self._seeker.max = length
            self._seeker.value = min(max(position, 1), length)

    def playing(self, playing: bool) -> None:
        """Label the button with what it does next."""
        if "play" in self._source.actions:
            self._play.options = (BUTTONS["play"] if playing else PLAY, *self._buttons[1:])

    def refuse(self, sentence: str) -> None:
        """Show an error message in every tab for a while."""
        for client in self._server.get_clients().values():
            client.add_notification("td3robot", sentence, color="red", auto_close_seconds=12.0)

    def close(self) -> None:
        """End the server."""
        self._server.stop()

    def _announce(self, client: Any) -> None:
        """Show in a new tab that the arm is loading, until the tab has drawn it."""
        notice = client.add_notification("td3robot", "loading the arm ...", loading=True, with_close_button=False)
        Thread(target=self._await_arm, args=(client, notice), daemon=True).start()

    def _await_arm(self, client: Any, notice: Any) -> None:
        if self._built.wait(LOADING_S):
            with suppress(RuntimeError, TimeoutError):  # the tab was closed, or is in the background
                client.get_render(8, 8, timeout=LOADING_S)
        notice.remove()

    def _add_event(self, action: str, value: Any = None) -> None:
        self._events.put(UiEvent(action, value))

    def _add_event_of(self, event: Any, action: str, value: Any) -> None:
        """Record an action of the user; changes by this program have no client."""
        if event.client is not None:
            self._add_event(action, value)

    def _add_controls(self) -> None:
        gui, actions = self._server.gui, self._source.actions
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(11, 107, 203))
        gui.main_panel.dock_right()
        gui.main_panel.set_width(380)
        gui.add_markdown(f"### {self._source.title}\n{self._source.kind[:1].upper()}{self._source.kind[1:]}.")
        self._words = gui.add_markdown("Starting ...")
        self._buttons = [name for action, name in BUTTONS.items() if action in actions]
        if self._buttons:
            self._play = gui.add_button_group("Playback", self._buttons)
            self._play.on_click(lambda _: self._add_event(ACTION_OF[self._play.value]))
        if "seek" in actions:
            self._seeker = gui.add_slider("Step", min=1, max=2, step=1, initial_value=1)
            self._seeker.on_update(lambda event: self._add_event_of(event, "seek", self._seeker.value - 1))
        if "speed" in actions:
            speed = gui.add_dropdown("Speed", SPEEDS, initial_value="1x")
            speed.on_update(lambda _: self._add_event("speed", speed.value.removesuffix("x")))
        if "act" in actions and len(self._source.controllers) > 1:
            self._controllers = gui.add_dropdown(
                "Moved by", self._source.controllers, initial_value=self._source.controllers[0]
            )
            self._controllers.on_update(lambda event: self._add_event_of(event, "act", self._controllers.value))
        self._seeing = gui.add_folder("Camera", visible=False)
        self._curves = gui.add_folder("Curves")
        self._jogging = gui.add_folder("By hand, behind the guard", expand_by_default=False, visible="jog" in actions)
        with gui.add_folder("What is what", expand_by_default=False):
            gui.add_markdown(LEGEND.format(ghost=self._source.ghost))

    def _add_picture(self, url: str) -> None:
        """Show a camera's picture, which the browser gets from the tracker itself."""
        self._seeing.visible = True
        with self._seeing:
            self._server.gui.add_html(f'<img src="{escape(url)}" alt="{NO_PICTURE}" style="width: 100%">')

    def _add_sliders(self, workcell: Workcell) -> None:
        arm, gripper = workcell.spec.arm, workcell.spec.gripper
        gui = self._server.gui
        with self._jogging:
            gui.add_markdown("The arm goes where these say, as far and as fast as the guard lets it.")
            sliders = [
                self._add_joint(name, float(low), float(high), float(home))
                for name, low, high, home in zip(arm.joint_names, arm.lower, arm.upper, arm.home, strict=True)
            ]
            closed = gui.add_slider(f"{gripper.name} closed (%)", min=0.0, max=100.0, step=1.0, initial_value=0.0)
        for slider in (*sliders, closed):
            slider.on_update(
                lambda event: self._add_event_of(
                    event, "jog", (np.radians([each.value for each in sliders]), closed.value / 100.0)
                )
            )

    def _add_joint(self, name: str, low: float, high: float, home: float) -> Any:
        return self._server.gui.add_slider(
            f"{joint_name(name)} (°)",
            min=float(np.ceil(np.degrees(low))),
            max=float(np.floor(np.degrees(high))),
            step=1.0,
            initial_value=float(np.round(np.degrees(home))),
        )

    def _add_chart(self, chart: Chart, data: tuple[Array, ...]) -> Any:
        lines: list[uplot.Series] = [{"label": chart.over}]
        lines += [
            {"label": series.label, "stroke": COLORS[series.color % len(COLORS)], "width": 2,
             "dash": (6, 4) if series.has_dashes else (), "points": {"show": len(data[0]) < 30}}
            for series in chart.series
        ]  # fmt: skip
        return self._server.gui.add_uplot(
            data, tuple(lines), title=f"{chart.title} ({chart.unit})" if chart.unit else chart.title,
            scales=_scales(chart, data), axes=({}, {"size": 58}), height=170, legend={"show": True}, padding=PADDING,
        )  # fmt: skip

    def _add_ghost(self, picture: Picture) -> None:
        self._ghost = []
        for body in picture.arm_bodies():
            mesh = merge_geoms(picture.model, picture.seen_geoms([body])).convex_hull
            handle = self._server.scene.add_mesh_simple(
                f"/commanded/{picture.model.body(body).name}", mesh.vertices, mesh.faces,
                color=GHOST, opacity=0.28, visible=False, cast_shadow=False, receive_shadow=False,
            )  # fmt: skip
            self._ghost.append((body, handle))

    def _add_walls(self, workcell: Workcell) -> None:
        low, high = np.array(workcell.workspace.low), np.array(workcell.workspace.high)
        corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
        edges = [(a, b) for a in range(8) for b in range(a) if np.abs(corners[a] - corners[b]).sum() == 1]
        points = (low + corners * (high - low))[np.array(edges)]
        self._server.scene.add_line_segments("/workspace", points, WALLS, thickness=0.003)

    def _add_goal(self, workcell: Workcell) -> Any:
        scene = self._server.scene
        moves = "goal" in self._source.actions
        goal: Any
        if moves:
            goal = scene.add_transform_controls(
                "/goal", scale=0.16, disable_rotations=True, disable_sliders=True, visible=False, depth_test=False
            )

            goal.on_update(self._drag)
        else:
            goal = scene.add_frame("/goal", show_axes=False, visible=False)
        scene.add_icosphere("/goal/ball", radius=GOAL_RADIUS_M, color=GOAL, cast_shadow=False)
        scene.add_icosphere("/goal/halo", radius=2.2 * GOAL_RADIUS_M, color=GOAL, opacity=0.25, cast_shadow=False)
        text = "goal: drag to move it" if moves else "goal"
        scene.add_label("/goal/name", text, position=(0.0, 0.0, 0.08), anchor="bottom-center", font_screen_scale=0.8)
        return goal

    def _drag(self, event: Any) -> None:
        self._dragged = event.phase != "end"
        if event.phase == "end":
            self._add_event("goal", np.array(event.target.position, np.float64))

    def _draw_arm(self) -> None:
        assert self._picture is not None
        measured, commanded = self._picture.measured, self._picture.commanded
        for body, handle in self._ghost:
            distance = float(np.abs(commanded.xpos[body] - measured.xpos[body]).max())
            turned = float(np.abs(commanded.xquat[body] - measured.xquat[body]).max())
            visible = distance > SAME_M or turned > 10 * SAME_M
            if visible != handle.visible:
                handle.visible = visible
            if visible:
                handle.position, handle.wxyz = commanded.xpos[body], commanded.xquat[body]
        self._scene.update_from_mjdata(measured)

    def _draw_goal(self, goal: Array | None) -> None:
        visible = goal is not None
        if visible != self._goal.visible:
            self._goal.visible = visible
        if goal is not None and not self._dragged and not np.allclose(self._goal.position, goal, atol=1e-6):
            self._goal.position = goal

    def _draw_trail(self, snapshot: Snapshot) -> None:
        assert self._picture is not None
        if snapshot.begins:
            self._trail.clear()
        self._trail.append((self._picture.tool().position, bool(snapshot.reasons)))
        self._frames += 1
        if len(self._trail) < 2 or self._frames % TRAIL_EVERY:
            return
        points = np.array([point for point, _ in self._trail])
        colors = np.array([CHANGED if changed else TRAIL for _, changed in self._trail], np.uint8)
        segments = np.stack([points[:-1], points[1:]], axis=1)
        self._server.scene.add_line_segments(
            "/trail", segments, np.stack([colors[1:], colors[1:]], axis=1), thickness=0.006
        )


def first_pose(workcell: Workcell, shape: float) -> tuple[Array, Array]:
    """Return where the first camera stands (3,) and looks (3,) [m].

    In a window that is higher than wide, it steps back and looks lower, so that all of the arm is seen above the sheet
    of controls that a phone has.

    Args:
        workcell: What it shows.
        shape: The window's width over its height.
    """
    if shape >= 1.0:
        return camera_pose(workcell, 1.0)
    position, look = camera_pose(workcell, PORTRAIT / shape)
    below = np.array([0.0, 0.0, PORTRAIT_BELOW * float(np.linalg.norm(position - look))])
    return position - below, look - below


def _columns(chart: Chart) -> tuple[Array, ...]:
    """Return the horizontal values of all curves, and each curve at these; NaN outside of it."""
    x = np.unique(np.concatenate([series.x for series in chart.series]))
    return x, *(np.interp(x, series.x, series.y, left=np.nan, right=np.nan) for series in chart.series)


def _scales(chart: Chart, data: tuple[Array, ...]) -> dict[str, uplot.Scale]:
    """Return both axes, fitted to the values: the page cannot if some are missing, and keeps those first drawn."""
    values = np.concatenate([*data[1:], np.array(chart.span or ())])
    return {"x": {"time": False, "auto": False, "range": _range(data[0], 0.0)},
            "y": {"auto": False, "range": _range(values, 0.05)}}  # fmt: skip


def _range(values: Array, share: float) -> tuple[float, float]:
    """Return the ends of an axis: those of the known values plus a margin, or space around a single value."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    margin = share * (high - low) if high > low else max(0.5, 0.05 * abs(low))
    return low - margin, high + margin


def _keep_private(server: Any) -> None:
    """Disable viser's tunnels: any tab could request a public address."""
    server.request_share_url = lambda verbose=True: None
