"""The tools of many postures, from one model."""

from collections.abc import Iterable

import mujoco
import numpy as np
from numpy.typing import NDArray

from td3robot.robots.kinematics import Kinematics
from td3robot.robots.simulated.scene import TCP_SITE
from td3robot.state import Array


class Tools:
    """The tools of m postures, in the base frame; filled by :class:`VectorizedKinematics`.

    Attributes:
        positions: (m, 3) tool centre points [m].
        rotations: (m, 3, 3).
        jacobians: (m, 6, n), linear [m/rad] above angular [1].
    """

    def __init__(self, count: int, joints: int) -> None:
        self.positions = np.zeros((count, 3))
        self.rotations = np.zeros((count, 3, 3))
        self.jacobians = np.zeros((count, 6, joints))

    @property
    def linear(self) -> Array:
        """The linear Jacobians (m, 3, n) [m/rad]."""
        return self.jacobians[:, :3]

    def rows(self, rows: NDArray[np.intp]) -> "Tools":
        """Return a copy of some rows."""
        found = Tools(0, self.jacobians.shape[2])
        found.positions, found.rotations, found.jacobians = (
            self.positions[rows], self.rotations[rows], self.jacobians[rows]
        )  # fmt: skip
        return found

    def set_rows(self, rows: NDArray[np.intp], tools: "Tools") -> None:
        """Replace some rows."""
        self.positions[rows], self.rotations[rows], self.jacobians[rows] = (
            tools.positions, tools.rotations, tools.jacobians
        )  # fmt: skip


class VectorizedKinematics:
    """Fill arrays with what :class:`Kinematics` answers, posture by posture, without objects in between.

    MuJoCo needs 5 µs for a posture, which NumPy does not beat for the few environments of a process.
    """

    def __init__(self, kinematics: Kinematics) -> None:
        self._model, self._clearance = kinematics.model, kinematics.clearance_m
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(TCP_SITE).id
        self._q = self._data.qpos
        self._position = self._data.site_xpos[self._site]
        self._rotation = self._data.site_xmat[self._site].reshape(3, 3)

    def fill(self, tools: Tools, q: Array, rows: Iterable[int], near: "NDArray[np.bool_] | None" = None) -> None:
        """Compute the tools of some rows of q (m, n) [rad].

        Args:
            tools: Where the results go.
            q: Postures.
            rows: Which.
            near: (m,) bool; set where links, gripper or table are closer than the clearance. None if not asked.
        """
        model, data, site = self._model, self._data, self._site
        for row in rows:
            self._q[:] = q[row]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            jacobian = tools.jacobians[row]
            mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
            tools.positions[row] = self._position
            tools.rotations[row] = self._rotation
            if near is not None:
                mujoco.mj_collision(model, data)
                near[row] = bool(data.ncon) and bool((data.contact.dist < self._clearance).any())
