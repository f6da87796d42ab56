"""The cell in the browser through Swift, with sliders that move the simulated arm behind the guard."""

import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import spatialgeometry
import swift
from spatialmath import SE3

from td3robot.format import joint_name
from td3robot.metrics import Chart
from td3robot.state import Array, Pose
from td3robot.view.episodes import BY_HAND
from td3robot.view.picture import Picture, camera_pose
from td3robot.view.show import Page, UiEvent, guard_line
from td3robot.view.source import Snapshot, Source, Workcell
from td3robot.view.swift_server import LoopbackSwift

LABELS = 5
BEHIND_THE_GUARD = "By hand (choose it above), the arm goes where these say, as far and as fast as the guard lets it"
GOAL_RADIUS_M = 0.02
GOAL_COLOR = (0.09, 0.64, 0.29, 0.9)
# A triangle of a binary STL file.
FACET = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("spare", "<u2")])


class SwiftPage(Page):
    """A page for one tab, which may be closed and reloaded. A slow tab slows down this process, and no other.

    Args:
        source: The source to show; its actions determine the controls.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = tempfile.TemporaryDirectory(prefix="td3robot-meshes-")
        self._swift = LoopbackSwift(Path(self._folder.name))
        self._events: list[UiEvent] = []
        self._cell: tuple[Workcell, Picture, list[tuple[int, spatialgeometry.Shape]]] | None = None
        self._labels: list[Any] = []
        self._ruling = ""
        self._goal = SE3(0, 0, -50)
        self._sliders: list[Any] = []
        self._by_hand, self._wanted = False, np.zeros(0)

    @property
    def url(self) -> str:
        """Its address on this computer."""
        return self._swift.url

    @property
    def ports(self) -> Sequence[int]:
        """The ports to forward to see it from elsewhere."""
        return self._swift.ports

    @property
    def watched(self) -> bool:
        """Whether a tab is open; a new one is sent the whole scene."""
        if self._swift.tab_came():
            self._guarded(self._fill)
        return bool(self._swift.has_tab)

    def build(self, workcell: Workcell) -> None:
        """Export the meshes and show everything."""
        picture = Picture(workcell)
        parts = shapes_of(picture, Path(self._folder.name))
        self._cell = workcell, picture, parts
        self._guarded(self._fill_cell)

    def draw(self, snapshot: Snapshot) -> None:
        """Show a moment."""
        if self._cell is None:
            return
        _, picture, _ = self._cell
        picture.place(snapshot)
        self._goal = SE3(snapshot.goal) if snapshot.goal is not None else SE3(0, 0, -50)
        self._ruling = guard_line(snapshot.reasons).replace("**", "") if snapshot.commanded is not None else ""
        self._guarded(lambda: self._swift.step(snapshot.lasts_s))

    def write(self, lines: Iterable[str]) -> None:
        """Show lines of text, what the guard did, and the tool's pose."""
        words = [line.replace("**", "") for line in lines]
        if self._ruling:
            words.append(self._ruling)
        if self._cell is not None:
            words.append(tool_line(self._cell[1].tool().to_se3()))
        for label, text in zip(self._labels, [*words, *[""] * LABELS], strict=False):
            if label.label != text:
                label.label = text
        self._guarded(lambda: self._swift.step(0.0))

    def plot(self, charts: list[Chart]) -> None:
        """Do nothing: Swift has no curves; viser's page does."""

    def events(self) -> list[UiEvent]:
        """Return the actions in the tab since the last call."""
        found, self._events = self._events, []
        return found

    def playing(self, playing: bool) -> None:
        """Label the button with what it does next."""
        if self._labels and "play" in self._source.actions:
            self._play.label = "Pause" if playing else "Play"

    def refuse(self, sentence: str) -> None:
        """Show an error message in place of the text."""
        self.write([sentence])

    def close(self) -> None:
        """End the servers, and delete the meshes."""
        self._swift.close()
        self._folder.cleanup()

    def _guarded(self, call: Any) -> None:
        """Talk to the tab; if it closes meanwhile, wait for the next one."""
        if not self._swift.has_tab:
            return
        try:
            call()
        except (TimeoutError, KeyError):
            self._swift.tab_left()

    def _fill(self) -> None:
        """Send everything to a new tab."""
        env = self._swift
        env._send_socket("axes", False, expected=False)
        env._send_socket("ground_opacity", 0.0, expected=False)  # it lies in the table's top
        env.set_lights(
            [
                swift.AmbientLight(intensity=1.1),
                swift.DirectionalLight(position=(2.0, -1.0, 3.0), intensity=1.6, cast_shadow=True),
                swift.DirectionalLight(position=(-2.0, 2.0, 2.0), intensity=0.8, cast_shadow=False),
            ]
        )
        self._labels = [env.add_ui(swift.Label("", compact=True)) for _ in range(LABELS)]
        self._add_controls()
        if self._cell is not None:
            self._fill_cell()

    def _fill_cell(self) -> None:
        assert self._cell is not None
        workcell, picture, parts = self._cell
        env = self._swift
        geoms = [geom for geom, _ in parts]
        env.add_assembly(lambda _: part_poses(picture, geoms), [shape for _, shape in parts])
        goal = spatialgeometry.Sphere(GOAL_RADIUS_M, color=GOAL_COLOR)
        env.add_assembly(lambda _: [self._goal], [goal])
        env.set_camera_pose(*(point.tolist() for point in camera_pose(workcell, 0.6)))
        if "jog" in self._source.actions:
            self._add_sliders(workcell)
        env.step(0.0)

    def _add_event(self, action: str, value: Any = None) -> None:
        self._events.append(UiEvent(action, value))

    def _add_controls(self) -> None:
        env, actions = self._swift, self._source.actions
        if "play" in actions:
            self._play = env.add_ui(swift.Button(lambda _: self._add_event("play"), label="Pause"))
        if "next" in actions:
            env.add_ui(swift.Button(lambda _: self._add_event("next"), label="Next episode"))
        if "act" in actions:
            options = list(self._source.controllers)
            env.add_ui(swift.Select(lambda index: self._choose(options[int(index)]), label="Moved by", options=options))

    def _choose(self, act: str) -> None:
        """Choose what moves the arm; by hand, the sliders start where the arm is."""
        self._by_hand = act == BY_HAND
        self._add_event("act", act)
        if self._cell is not None and self._by_hand:
            _, picture, _ = self._cell
            posture, closed = picture.commanded_posture()
            self._wanted = np.array([*np.round(np.degrees(posture)), round(100.0 * closed)])
            for slider, value in zip(self._sliders, self._wanted, strict=True):
                slider.value = float(value)

    def _moved(self, number: int, value: float) -> None:
        """Handle a slider's value; the page also echoes the values that it was sent."""
        if self._by_hand and abs(value - self._wanted[number]) > 0.5:
            self._wanted[number] = value
            self._add_event("jog", (np.radians(self._wanted[:-1]), float(self._wanted[-1]) / 100.0))

    def _add_sliders(self, workcell: Workcell) -> None:
        env, arm = self._swift, workcell.spec.arm
        env.add_ui(swift.Label(BEHIND_THE_GUARD, compact=True))
        self._by_hand, self._sliders = False, []
        self._wanted = np.array([*np.round(np.degrees(arm.home)), 0.0])
        rows = [
            (joint_name(name), "°", *np.round(np.degrees([low, high])))
            for name, low, high in zip(arm.joint_names, arm.lower, arm.upper, strict=True)
        ]
        for number, (label, unit, low, high) in enumerate([*rows, ("Gripper closed", "%", 0.0, 100.0)]):
            slider = swift.Slider(
                partial(self._moved, number), low, high, 1.0, float(self._wanted[number]), label, unit, precision=0
            )
            self._sliders.append(env.add_ui(slider))
        env.step(0.0)
        for slider, value in zip(self._sliders, self._wanted, strict=True):
            slider.value = float(value)  # the page sets it before the step, and rounds it to one of the default's


def part_poses(picture: Picture, geoms: Sequence[int]) -> list[SE3]:
    """Return the poses of geometries."""
    data = picture.measured
    return [Pose(data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)).to_se3() for geom in geoms]


def tool_line(tool: SE3) -> str:
    """Write the tool's position and orientation."""
    x, y, z = 1e3 * tool.t
    roll, pitch, yaw = tool.rpy(unit="deg")
    return f"Tool at ({x:.0f}, {y:.0f}, {z:.0f}) mm, roll {roll:.0f}°, pitch {pitch:.0f}°, yaw {yaw:.0f}°"


def shapes_of(picture: Picture, folder: Path) -> list[tuple[int, spatialgeometry.Shape]]:
    """Return every visible geometry as a shape, with its number; meshes are written to a folder first."""
    return [(geom, _shape(picture.model, geom, folder)) for geom in picture.seen_geoms()]


def write_stl(path: Path, vertices: Array, faces: Array) -> None:
    """Write a mesh as binary STL.

    Args:
        path: The file.
        vertices: (n, 3) [m].
        faces: (m, 3) vertex indices.
    """
    corners = vertices[faces]
    facets = np.zeros(len(faces), FACET)
    facets["corners"] = corners
    facets["normal"] = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    path.write_bytes(bytes(80) + np.uint32(len(faces)).tobytes() + facets.tobytes())


def _shape(model: mujoco.MjModel, geom: int, folder: Path) -> spatialgeometry.Shape:
    material = model.geom_matid[geom]
    color = (model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]).tolist()
    size = model.geom_size[geom].tolist()
    match mujoco.mjtGeom(model.geom_type[geom]):
        case mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.mesh(model.geom_dataid[geom])
            path = folder / f"mesh{model.geom_dataid[geom]}.stl"
            if not path.exists():
                vertices = model.mesh_vert[int(mesh.vertadr[0]) :][: int(mesh.vertnum[0])]
                write_stl(path, vertices, model.mesh_face[int(mesh.faceadr[0]) :][: int(mesh.facenum[0])])
            return spatialgeometry.Mesh(str(path), color=color)
        case mujoco.mjtGeom.mjGEOM_BOX:
            return spatialgeometry.Cuboid([2 * half for half in size], color=color)
        case mujoco.mjtGeom.mjGEOM_CYLINDER | mujoco.mjtGeom.mjGEOM_CAPSULE:
            return spatialgeometry.Cylinder(size[0], 2 * size[1], color=color)
        case _:
            return spatialgeometry.Sphere(max(size), color=color)
