"""The lab of an FR3: franka-sim in its own environment, with its limits enforced, without a table and objects."""

import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

from td3robot.errors import ConfigError
from td3robot.robots.cells.franka import FrankaCell
from td3robot.robots.franka.link import HAND_PORT, ROBOT_PORT
from td3robot.robots.interface import robot_spec
from td3robot.simulators.franka.process import FrankaSimulator, extremes, read_log, timekeeping
from td3robot.simulators.presets import NOMINAL
from td3robot.simulators.sessions import SESSIONS, SimulatorConfig, SimulatorSession

# The stand-in reports its first state within this time, even on a busy computer; a robot is given 0.1 s [s].
MAX_STATE_AGE_S = 0.5
# franka-sim's cycles wait when this computer is late, and the targets with them: a tenth of all time on two slow cores.
# This is the driver's patience with that [control periods]; with a robot, it keeps its own.
LATE_PERIODS = 6.0


class FrankaSession(SimulatorSession):
    """A stand-in for an FR3 with its hand; see :class:`SimulatorSession`."""

    arms = ("fr3",)
    ports = (ROBOT_PORT, HAND_PORT)
    cell_type = FrankaCell

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        if config.objects:
            names = ", ".join(item.name for item in config.objects)
            raise ConfigError(f"franka-sim has no table and no objects, and the task needs {names}; rehearse reach")
        if config.faults is not None:
            raise ConfigError("franka-sim's faults cannot be timed by a file; leave --faults out")
        if config.preset is not NOMINAL:
            raise ConfigError(f"franka-sim has no cell {config.preset.name!r}: its arm is always the same")
        if not config.host.startswith("127."):
            raise ConfigError(f"the stand-in's host {config.host!r} is not a loopback address; use 127.x.x.x")
        self.cell: FrankaCell = FrankaCell.model_validate(_cell(config))
        self._folder = tempfile.TemporaryDirectory(prefix="td3robot-franka-")
        self._log, self._since = Path(self._folder.name) / "commands.bin", 0.0
        self.simulator = FrankaSimulator(config.host, log=self._log)

    def reset_wire(self) -> None:
        """Reset the extremes of :meth:`wire`."""
        self._since = monotonic()

    def wire(self) -> dict[str, Any]:
        """Return the extremes of the received 1 kHz commands, and of the measurements."""
        data, spec = self._records(), robot_spec(self.config.robot)
        return {"targets": extremes(data, "c", spec), "measured": extremes(data, "q", spec)}

    def clock(self) -> dict[str, float]:
        """Return how well the stand-in kept time."""
        return timekeeping(self._records())

    def close(self) -> None:
        """End the process. May be repeated."""
        self.simulator.close()
        self._folder.cleanup()

    def _records(self) -> Any:
        self.simulator.flush()
        return read_log(self._log, self._since)


def _cell(config: SimulatorConfig) -> dict[str, Any]:
    return {
        "robot": config.robot.model_dump() | {"backend": "franka"},
        "franka": {
            "host": config.host,
            "serial_number": "franka-sim",
            "realtime": "ignore",
            "late_periods": LATE_PERIODS * config.timeout_scale,
            "max_state_age_s": min(MAX_STATE_AGE_S * config.timeout_scale, 1.0),
        }
        | ({} if config.stream_hz is None else {"stream_hz": config.stream_hz}),
    }


SESSIONS.register("franka", FrankaSession)
