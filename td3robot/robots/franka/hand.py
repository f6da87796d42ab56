"""The Franka Hand through franka-rs: polled in one thread, and commanded in another, because commands block."""

import threading
from time import monotonic
from typing import Any

from td3robot.robots.driver.link import StoppedError

OPEN_WIDTH_M = 0.08
# From this closed fraction on, the fingers grasp with force; below, they move to a width.
GRASP_FROM = 0.9
# Wishes nearer to the last one than this count as the same; the hand takes 0.1 s for any command [closed fraction].
SAME = 0.02
# Fingers that met nothing end closer together than this, and the hand still calls it a grasp [m].
NOTHING_M = 0.002


class Hand:
    """Fingers that go to the latest wish once they have finished the one before it.

    Attributes:
        refused: Commands that the hand did not carry out, for example because something was in the way.
        fault: Why its state is no longer known, or None.
    """

    def __init__(self, robot_host: str, speed_m_s: float, force_n: float) -> None:
        import franka

        self._error = franka.FrankaError
        self._hand: Any = franka.Gripper(robot_host)
        self._speed, self._force = speed_m_s, force_n
        self._wake = threading.Condition()
        self._wanted: float | None = None
        self._commanded: float | None = None
        self.width, self.grasped, self.stamp = 0.0, False, 0.0
        self.refused = 0
        # The hand reports a grasp until its next command is done, even while its fingers open. Its report about
        # commands before ours is taken as it is.
        self._gripping = True
        self.fault: str | None = None
        self._see()
        for work, name in ((self._poll, "hand-poll"), (self._act, "hand-act")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def want(self, closed: float) -> None:
        """Go to a closed fraction in [0, 1]; below 0, stay."""
        if closed < 0.0 or (self._wanted is not None and abs(closed - self._wanted) < SAME):
            return
        with self._wake:
            self._wanted = closed
            self._wake.notify()

    def _see(self) -> None:
        state = self._hand.read_once()
        self.width, self.stamp = state.width, monotonic()
        self.grasped = state.is_grasped and state.width > NOTHING_M and self._gripping

    def _poll(self) -> None:
        try:
            while True:
                self._see()
        except self._error as error:
            self.fault = f"the hand no longer reports: {' '.join(str(error).split())}"

    def _act(self) -> None:
        while self.fault is None:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted != self._commanded)
                self._commanded = closed = self._wanted
            if closed is not None:
                self._go(closed)

    def _go(self, closed: float) -> None:
        self._gripping = False
        try:
            if closed >= GRASP_FROM:
                self._hand.grasp(0.0, self._speed, self._force, 0.005, OPEN_WIDTH_M)
                self._gripping = True
            else:
                self._hand.move(OPEN_WIDTH_M * (1.0 - closed), self._speed)
        except self._error:
            self.refused += 1


def home_hand(host: str) -> None:
    """Home the hand to find its widest opening; its fingers close and open.

    Raises:
        StoppedError: There is no hand, or homing failed.
        ImportError: franka-rs is not installed.
    """
    import franka

    try:
        franka.Gripper(host).homing()
    except franka.FrankaError as error:
        raise StoppedError(f"the hand at {host} cannot be made ready: {' '.join(str(error).split())}") from None


def connect_hand(settings: dict[str, Any]) -> Hand:
    """Connect to the hand of a robot, by the settings of ``FrankaConfig``.

    Raises:
        StoppedError: There is no hand.
    """
    import franka

    try:
        return Hand(settings["host"], settings["hand_speed_m_s"], settings["hand_force_n"])
    except franka.FrankaError as error:
        raise StoppedError(
            f"the hand at {settings['host']} cannot be used ({' '.join(str(error).split())}); initialise it in Desk, "
            "or set franka.hand to false"
        ) from None
