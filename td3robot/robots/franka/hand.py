"""The Franka Hand through franka-rs: polled in one thread, and told where to go in another, which commands block."""

import threading
from time import monotonic
from typing import Any

from td3robot.robots.driver.link import StoppedError

OPEN_WIDTH_M = 0.08
# From this closed fraction on, fingers close with force on what is between them; less is a width to go to.
GRASP_FROM = 0.9
# Wishes nearer to the last one than this are the same; the hand takes 0.1 s for any command [closed fraction].
SAME = 0.02
# Fingers that met nothing end closer than this, and the hand calls it a grasp all the same [m].
NOTHING_M = 0.002


class Hand:
    """Fingers that go to the latest wish when they have done with the one before it.

    Attributes:
        refused: Commands that the hand did not carry out, as when something was in the way.
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
        # The hand says that it grasps until its next command is done, also while its fingers open. What it says of
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
    """Have the hand find its widest opening; its fingers close and open.

    Raises:
        StoppedError: There is no hand, or it did not.
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
        StoppedError: There is none.
    """
    import franka

    try:
        return Hand(settings["host"], settings["hand_speed_m_s"], settings["hand_force_n"])
    except franka.FrankaError as error:
        raise StoppedError(
            f"the hand at {settings['host']} cannot be used ({' '.join(str(error).split())}); initialise it in Desk, "
            "or set franka.hand to false"
        ) from None
