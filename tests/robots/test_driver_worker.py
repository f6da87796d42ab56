"""The worker's loop by the clock of the test: deadlines, braking, the watchdog's food, and the latch."""

from itertools import pairwise

import numpy as np
import pytest

from td3robot.processes import Channel, ChannelClosedError
from td3robot.robots.cells.ur import UrConfig
from td3robot.robots.driver import worker as module
from td3robot.robots.driver.link import StoppedError, StreamSettings
from td3robot.robots.driver.plausibility import ToolCheck, pose_of
from td3robot.robots.driver.shared_memory import SharedMemory, Status, Target
from td3robot.robots.driver.worker import AT_REST_RAD_S, MAX_PARENT_SILENCE_S, SETTLE_S, Worker
from td3robot.robots.ur.link import WAITS_AFTER_S, UrLink, UrState

TICK, PERIOD = 0.008, 0.05
START = 1000.0
SPEED = 0.3  # [rad/s]


class FakeController(UrLink):
    """An arm that is where it was told to be, and notes every call with its time."""

    def __init__(self, scene, settings, stream):
        super().__init__(settings, stream)
        self.scene, self.calls = scene, []
        self.q, self.dq = np.full(6, 0.2), np.zeros(6)
        self.held, self._receive, self.scaling, self.time = None, self, 1.0, lambda: 0.0
        self.slider, self.running, self.objection, self.tool = 1.0, True, None, (0.0,) * 12
        self.tool_speed, self.silent, self.force = 0.0, False, (0.0,) * 6
        self.servo_takes_s, self.servo_objection, self.coasting = 0.0, None, np.zeros(6)

    def connect(self):
        return {"q": self.q.tolist(), "unlock": self._stream.recover_after_s}

    def observe(self, now, before):
        return {} if self.silent else {
            "stamp": now, "q": tuple(self.q), "dq": tuple(self.dq), "speed_slider": self.slider,
            "program_running": int(self.running), "speed_scaling": self.scaling, "controller_time": self.time(),
            "tool": self.tool,
            "tcp_speed": self.tool_speed, "force": self.force,
        }  # fmt: skip

    def require_healthy(self, state, now):
        if self.objection is not None:
            raise self.objection

    def servo(self, q):
        self.note("servo", np.array(q))
        if self.servo_objection is not None:
            raise self.servo_objection
        self.scene.now += self.servo_takes_s
        self.dq = (np.array(q) - self.q) / TICK + self.coasting
        self.q = np.array(q)

    def getTargetQ(self):  # noqa: N802  # ur_rtde's name
        return (self.q if self.held is None else self.held).tolist()

    def feed_watchdog(self, state):
        if state.program_running:
            self.note("kick")

    def servo_stop(self):
        self.note("servo_stop")
        self.dq = self.coasting

    def leave(self):
        self.note("leave")

    def note(self, name, value=None):
        self.calls.append((self.scene.now, name, value))

    def times(self, name):
        return [at for at, called, _ in self.calls if called == name]


class EndOfSceneError(Exception):
    pass


class Scene:
    """A worker, the process that decides, and their clock."""

    def __init__(self, monkeypatch, control=True, recover_after_s=None, **ur):
        self.now, self.events = START, []
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        monkeypatch.setattr(module, "sleep", self.sleep)
        self.memory, descriptor = SharedMemory.create(UrState())
        self.channel, other = Channel.pair()
        config = UrConfig.model_validate({"host": "127.0.0.1", **ur})
        stream = StreamSettings(
            rate_hz=1.0 / TICK,
            period_s=PERIOD,
            control=control,
            recover_after_s=recover_after_s,
            late_periods=config.late_periods,
            stop_deceleration_rad_s2=config.stop_deceleration_rad_s2,
            realtime_priority=0,
            joint_names=tuple("abcdef"),
            lower=(-6.0,) * 6,
            upper=(6.0,) * 6,
            velocity=(3.0,) * 6,
            max_tcp_speed_m_s=0.25,
            max_contact_force_n=100.0,
        )
        self.arm = FakeController(self, config.model_dump(mode="json"), stream)
        self.worker = Worker(Channel(other), SharedMemory(descriptor, UrState()), self.arm, stream)
        self.count, self.q, self.alive = 0, np.full(6, 0.2), True
        self.statuses, self.said = [], []

    def sleep(self, seconds):
        assert seconds >= 0.0
        self.observe()
        self.now += seconds
        while self.events and self.events[0][0] <= self.now + 1e-9:
            self.events.pop(0)[1]()
        if self.alive:
            self.beat()
        if self.now >= self.ends:
            raise EndOfSceneError

    def observe(self):
        state = self.memory.state.read()
        if not self.statuses or self.statuses[-1][1] != state.status:
            self.statuses.append((self.now, Status(state.status)))
        try:
            while self.channel.poll():
                self.said.append(self.channel.receive())
        except ChannelClosedError:
            pass

    def beat(self):
        last = self.memory.target.read()
        self.memory.target.write(Target(self.now, last.sent_at, last.count, last.q))

    def aim(self, move=SPEED * PERIOD, count=1):
        self.count += count
        self.q = self.q + np.array([move, 0, 0, 0, 0, 0]) * count
        self.memory.target.write(Target(self.now, self.now, self.count, tuple(self.q)))

    def at(self, seconds, event):
        self.events.append((START + seconds, event))
        self.events.sort(key=lambda item: item[0])

    def stream(self, begin, periods, move=SPEED * PERIOD):
        for number in range(periods):
            self.at(begin + number * PERIOD, lambda: self.aim(move))

    def order(self, name):
        self.channel.send({"order": name})

    def run(self, seconds):
        """Play the scene; returns whether the worker left of itself."""
        self.ends = START + seconds
        self.worker.connect()
        try:
            self.worker.run()
        except EndOfSceneError:
            self.observe()
            return False
        self.observe()
        return True

    @property
    def faults(self):
        return [message["fault"] for message in self.said if "fault" in message]

    def became(self, status):
        return [at for at, seen in self.statuses if seen is status]


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def targets(scene):
    return np.array([value for _, name, value in scene.arm.calls if name == "servo"])


def test_targets_are_streamed_once_a_tick_from_the_measured_posture(scene):
    scene.stream(0.1, 10)
    scene.run(0.5)
    times, streamed = scene.arm.times("servo"), targets(scene)
    assert all(later - sooner == pytest.approx(TICK) for sooner, later in pairwise(times))
    assert streamed[0] == pytest.approx(np.full(6, 0.2), abs=SPEED * TICK)
    moving = np.diff(streamed[:, 0])[2:40]
    assert moving == pytest.approx(np.full(len(moving), SPEED * TICK), rel=1e-6)
    state = scene.memory.state.read()
    assert state.target == pytest.approx(streamed[-1])
    assert (state.status, state.beat) == (Status.STREAMING, pytest.approx(scene.now, abs=2 * TICK))


def push(scene, newton, begin, end):
    """Press against the tool from all sides but one, for a time [s]."""
    scene.arm.time = lambda: scene.now
    scene.at(begin, lambda: setattr(scene.arm, "force", (0.6 * newton, 0.0, -0.8 * newton, 50.0, 50.0, 50.0)))
    scene.at(end, lambda: setattr(scene.arm, "force", (0.0,) * 6))


def test_a_force_that_lasts_stops_the_arm_for_good_and_says_how_large_it_was(scene):
    scene.stream(0.1, 30)
    push(scene, 130.0, 0.5, 0.7)
    scene.run(2.0)
    (said,) = scene.faults
    assert said.startswith("the tool has met 130 N for 5") and "guard.max_contact_force_n 100 N: free the tool" in said
    assert scene.became(Status.BRAKING)[0] == pytest.approx(START + 0.55, abs=0.02)
    assert scene.statuses[-1][1] is Status.FAILED  # although nothing presses any more, and targets went on
    assert scene.arm.dq == pytest.approx(np.zeros(6), abs=1e-6)


@pytest.mark.parametrize(("newton", "lasts_s"), [(130.0, 0.03), (95.0, 0.5)])
def test_a_blink_and_a_force_below_the_limit_stop_nothing(scene, newton, lasts_s):
    scene.stream(0.1, 30)
    push(scene, newton, 0.5, 0.5 + lasts_s)
    scene.run(1.4)
    assert scene.faults == []


def test_a_force_on_an_arm_that_nobody_moves_is_no_fault(scene):
    push(scene, 200.0, 0.1, 0.9)
    scene.run(1.0)
    assert scene.faults == []


def test_the_first_state_is_there_when_connecting_returns(monkeypatch):
    scene = Scene(monkeypatch, recover_after_s=1.5)
    scene.ends = START
    facts = scene.worker.connect()
    state = scene.memory.state.read()
    assert facts["unlock"] == 1.5
    assert (state.status, state.beat, state.stamp, state.q) == (Status.HOLDING, START, START, (0.2,) * 6)


def test_a_motion_begins_where_the_arm_is_and_not_where_it_was(scene):
    scene.at(0.1, lambda: setattr(scene.arm, "q", np.full(6, 0.5)))
    scene.at(0.2, lambda: setattr(scene, "q", np.full(6, 0.5)))
    scene.stream(0.2, 3)
    scene.run(0.4)
    assert targets(scene)[0] == pytest.approx(np.full(6, 0.5), abs=SPEED * TICK)


def test_targets_from_before_the_connection_are_not_played(scene):
    scene.aim(count=3)
    scene.run(0.3)
    assert scene.arm.times("servo") == []


def test_the_watchdog_is_fed_every_tick_while_nothing_is_streamed(scene):
    scene.stream(0.2, 4)
    scene.at(0.35, lambda: scene.order("stop"))
    scene.run(1.0)
    fed = [START, *sorted(scene.arm.times("kick") + scene.arm.times("servo")), scene.now]
    assert max(later - sooner for sooner, later in pairwise(fed)) < 2.01 * TICK


def test_a_program_that_does_not_run_is_not_fed(scene):
    scene.arm.running = False
    scene.run(0.1)
    assert scene.arm.times("kick") == []


@pytest.mark.parametrize("late_periods", [2.5, 4.0])
def test_no_target_for_late_periods_is_a_fault_and_not_sooner(monkeypatch, late_periods):
    scene = Scene(monkeypatch, late_periods=late_periods)
    scene.stream(0.1, 5)
    scene.run(1.5)
    last_sent = START + 0.1 + 4 * PERIOD
    (braked,) = scene.became(Status.BRAKING)
    # The last target is played for one period, with a tenth of it as slack.
    assert braked - last_sent == pytest.approx((late_periods + 0.1) * PERIOD, abs=2 * TICK)
    assert scene.faults == [
        f"no new target came for {late_periods:g} control periods ({1e3 * late_periods * PERIOD:.0f} ms): the program "
        "that decides is late"
    ]
    assert scene.memory.state.read().status == Status.FAILED


def test_an_arm_that_falls_behind_its_targets_is_a_fault(scene):
    scene.arm.servo_takes_s = 0.012
    scene.stream(0.1, 60)
    scene.run(3.0)
    assert len(scene.faults) == 1
    assert "behind its targets: this computer is too busy" in scene.faults[0]
    behind = float(scene.faults[0].split()[3])
    assert 75.0 <= behind < 110.0  # (2.5 - 1) periods


@pytest.mark.parametrize(("slider", "fault"), [(0.94, True), (0.95, False)])
def test_a_lowered_slider_is_a_fault_below_its_limit(scene, slider, fault):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "slider", slider))
    scene.run(0.8)
    assert bool(scene.faults) is fault
    assert not fault or "speed slider went to 94 % while the arm was driven" in scene.faults[0]


def test_a_silent_parent_is_a_fault_even_where_its_targets_go_on(monkeypatch):
    scene = Scene(monkeypatch, late_periods=100)
    scene.stream(0.1, 3)
    scene.at(0.2, lambda: setattr(scene, "alive", False))
    scene.run(1.2)
    assert len(scene.faults) == 1 and "no sign of life for 0.5" in scene.faults[0]
    silent_since = START + 0.2
    assert scene.became(Status.BRAKING)[0] - silent_since == pytest.approx(MAX_PARENT_SILENCE_S, abs=2 * TICK)


def test_targets_that_were_never_seen_are_played_at_the_speed_that_was_meant(scene):
    scene.stream(0.1, 2)
    scene.at(0.2, lambda: scene.aim(count=3))
    scene.at(0.22, lambda: None)
    scene.run(0.35)
    steps = np.diff(targets(scene)[:, 0])
    assert steps.max() <= SPEED * TICK * 1.001


def test_stop_brakes_ends_the_servo_and_holds(scene):
    scene.stream(0.1, 6)
    scene.at(0.4, lambda: scene.order("stop"))
    scene.run(1.0)
    stopped = START + 0.4
    assert [status for _, status in scene.statuses] == [
        Status.HOLDING, Status.STREAMING, Status.BRAKING, Status.SETTLING, Status.HOLDING,
    ]  # fmt: skip
    assert len(scene.arm.times("servo_stop")) == 1
    # 0.3 rad/s at 10 rad/s2 are gone after 30 ms, and a tick of rest.
    assert scene.arm.times("servo_stop")[0] - stopped == pytest.approx(SPEED / 10.0, abs=4 * TICK)
    late = [value[0] for at, name, value in scene.arm.calls if name == "servo" and at >= stopped]
    assert late[-1] - late[0] == pytest.approx(SPEED**2 / 20.0, abs=SPEED * TICK)
    assert max(scene.arm.times("servo")) < scene.became(Status.SETTLING)[0] + TICK
    assert scene.memory.state.read().orders == 1
    assert scene.faults == []


def test_what_was_sent_before_or_during_a_stop_is_not_played_afterwards(scene):
    scene.at(0.1, lambda: (scene.aim(), scene.order("stop")))
    scene.stream(0.2, 5)
    scene.at(0.35, lambda: scene.order("stop"))
    scene.at(0.36, scene.aim)
    scene.at(0.37, scene.aim)
    scene.run(1.0)
    assert min(scene.arm.times("servo")) >= START + 0.2 - TICK
    assert scene.statuses[-1][1] is Status.HOLDING
    assert len(scene.became(Status.STREAMING)) == 1
    assert scene.memory.state.read().orders == 2


def test_after_a_stop_motion_begins_anew(scene):
    scene.stream(0.1, 4)
    scene.at(0.28, lambda: scene.order("stop"))
    scene.at(0.6, lambda: setattr(scene, "q", scene.arm.q.copy()))
    scene.stream(0.6, 5)
    scene.run(0.85)
    assert len(scene.became(Status.STREAMING)) == 2
    assert np.abs(np.diff(targets(scene)[:, 0])).max() <= SPEED * TICK * 1.001


def test_the_servo_ends_only_when_the_arm_is_slow_or_will_not_settle(scene):
    """While a controller ends its servo, nothing feeds the watchdog."""
    scene.stream(0.1, 5)
    scene.at(0.3, lambda: (scene.order("stop"), setattr(scene.arm, "coasting", np.full(6, 0.5))))
    scene.run(3.5)
    (ended,) = scene.arm.times("servo_stop")
    assert ended - (START + 0.3) == pytest.approx(SETTLE_S + SPEED / 10.0, abs=5 * TICK)
    # The arm never comes to rest: it is held all the same, a second later.
    assert scene.became(Status.HOLDING)[-1] - ended == pytest.approx(SETTLE_S, abs=3 * TICK)


def test_an_arm_slow_enough_for_the_watchdog_is_stopped_at_once(scene):
    """0.25 of a period of 10 Hz, at 10 m/s2, are 0.25 m/s."""
    for coasting, waits in ((0.2, False), (0.3, True)):
        scene.arm.coasting = np.array([0, 0, 0, 0, 0, coasting])
        scene.arm.calls.clear()
        begin = scene.now - START
        scene.stream(begin + 0.1, 3)
        scene.at(begin + 0.2, lambda: scene.order("stop"))
        scene.events.sort(key=lambda item: item[0])
        scene.run(begin + 2.8)
        assert (scene.arm.times("servo_stop")[0] - START - begin > 1.0) is waits


def test_settling_lasts_until_the_arm_is_at_rest(scene):
    scene.stream(0.1, 5)
    scene.arm.coasting = np.full(6, 2 * AT_REST_RAD_S)
    scene.at(0.3, lambda: scene.order("stop"))
    scene.at(0.7, lambda: setattr(scene.arm, "dq", np.full(6, 0.5 * AT_REST_RAD_S)))
    scene.run(1.2)
    assert scene.became(Status.HOLDING)[-1] - START == pytest.approx(0.7, abs=2 * TICK)


def test_leaving_waits_for_rest_and_ends_the_program(scene):
    scene.stream(0.1, 20)
    scene.at(0.4, lambda: scene.order("leave"))
    assert scene.run(2.0)
    assert scene.arm.calls[-1][1] == "leave"
    assert scene.statuses[-1][1] is Status.HOLDING
    assert len(scene.arm.times("servo_stop")) == 1


def test_a_parent_that_is_gone_stops_the_arm_and_ends_the_worker(scene):
    scene.stream(0.1, 5)
    scene.at(0.28, lambda: (scene.channel.close(), setattr(scene, "alive", False)))
    assert scene.run(2.0)
    assert scene.became(Status.BRAKING)[0] == pytest.approx(START + 0.28, abs=2 * TICK)  # at once, not when it is late
    assert scene.arm.calls[-1][1] == "leave"
    assert len(scene.arm.times("servo_stop")) == 1


def test_a_fault_while_streaming_brakes_and_latches(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "objection", StoppedError("something is wrong")))
    scene.run(1.0)
    assert scene.faults == ["something is wrong"]
    assert scene.memory.state.read().status == Status.FAILED


def test_a_passing_fault_while_streaming_brakes_like_a_stop_and_latches(scene):
    """The objection is raised once: the arm can still be braked by targets, and is."""
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "objection", StoppedError("once")))
    scene.at(0.307, lambda: setattr(scene.arm, "objection", None))
    scene.run(1.0)
    assert [status for _, status in scene.statuses][-3:] == [Status.BRAKING, Status.SETTLING, Status.FAILED]
    assert scene.faults == ["once"]
    assert len(scene.arm.times("servo_stop")) == 1
    streamed_after = len(scene.arm.times("servo"))
    scene.aim()
    scene.ends = scene.now + 0.3
    with pytest.raises(EndOfSceneError):
        scene.worker.run()
    assert len(scene.arm.times("servo")) == streamed_after  # nothing is played after a fault


def test_a_fault_at_rest_is_latched_without_a_motion(scene):
    scene.at(0.1, lambda: setattr(scene.arm, "objection", StoppedError("at rest")))
    scene.run(0.4)
    assert scene.memory.state.read().status == Status.FAILED
    assert scene.faults == ["at rest"]
    assert scene.arm.times("servo") == scene.arm.times("servo_stop") == []


def test_where_the_program_is_gone_nothing_more_is_streamed(scene):
    scene.stream(0.1, 20)

    def end():
        scene.arm.running = False
        scene.arm.objection = StoppedError("the control script no longer runs")

    scene.at(0.3, end)
    scene.run(0.8)
    assert max(scene.arm.times("servo")) <= START + 0.3
    assert scene.memory.state.read().status == Status.FAILED


def test_a_lost_connection_ends_the_worker_without_another_call(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "objection", StoppedError("lost", connected=False)))
    assert scene.run(2.0)
    assert scene.faults == ["lost"]
    assert scene.arm.times("leave") == []
    assert max(at for at, _, _ in scene.arm.calls) <= START + 0.3
    assert scene.memory.state.read().status == Status.FAILED


@pytest.mark.parametrize("call", ["observe", "require_healthy", "servo", "feed_watchdog"])
def test_a_client_that_loses_its_connection_during_a_call_is_a_lost_connection(scene, call):
    """ur_rtde raises boost's socket error out of the call that meets it, before ``isConnected`` is false."""

    def reset(*_):
        raise RuntimeError("Connection reset by peer")

    if call != "feed_watchdog":
        scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, call, reset))
    assert scene.run(2.0)
    assert scene.faults == [
        "the connection to the controller was lost (Connection reset by peer); see to network and controller"
    ]
    assert scene.arm.times("leave") == []
    assert max(at for at, _, _ in scene.arm.calls) <= START + 0.3
    assert scene.memory.state.read().status == Status.FAILED


def test_a_connection_lost_after_a_fault_ends_the_worker_too(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "objection", StoppedError("first")))
    scene.at(0.4, lambda: setattr(scene.arm, "objection", StoppedError("second", connected=False)))
    assert scene.run(2.0)
    assert scene.faults == ["first"]  # the first reason is the one that is told
    assert scene.arm.times("leave") == []


def test_a_refused_target_latches_at_once_when_braking_is_refused_too(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "servo_objection", StoppedError("refused a target")))
    scene.run(0.6)
    assert scene.faults == ["refused a target"]
    assert scene.memory.state.read().status == Status.FAILED
    assert len([at for at in scene.arm.times("servo") if at >= START + 0.3]) == 2  # the refused one, and braking


def test_a_fault_that_nobody_hears_makes_the_worker_leave(scene):
    def vanish():
        scene.channel.close()
        scene.alive = False
        scene.worker._take_orders = lambda now: None  # it has not noticed yet
        scene.arm.objection = StoppedError("at rest")

    scene.at(0.1, vanish)
    assert scene.run(1.0)
    assert scene.arm.calls[-1][1] == "leave"


def test_figures_are_the_periods_between_streamed_targets_of_one_motion(scene):
    scene.stream(0.1, 4)
    scene.at(0.3, lambda: scene.order("stop"))
    scene.at(0.7, lambda: setattr(scene, "q", scene.arm.q.copy()))
    scene.stream(0.7, 4)
    scene.at(0.95, lambda: scene.order("figures"))
    scene.run(1.0)
    (figures,) = [message["figures"] for message in scene.said if "figures" in message]
    streamed = [at for at in scene.arm.times("servo") if at < START + 0.95]
    assert figures["streamed"] == len(streamed) - 2  # neither motion's first, and not the rest between them
    assert figures["period_max_ms"] == pytest.approx(1e3 * TICK, rel=1e-3)
    assert scene.memory.state.read().orders == 1  # figures are no order that stops


def test_a_tool_near_its_limit_is_driven_slower_and_its_time_slips(scene):
    scene.arm.tool_speed = 0.25
    scene.stream(0.1, 8)
    scene.at(0.2, lambda: setattr(scene.arm, "tool_speed", 0.2))
    scene.at(0.45, lambda: scene.order("figures"))
    scene.run(0.5)
    assert not scene.faults
    moved = np.diff(targets(scene)[:, 0]) / TICK
    at = np.array(scene.arm.times("servo"))[1:] - START
    np.testing.assert_allclose(moved[(at > 0.12) & (at < 0.2)], 0.6 * SPEED, rtol=1e-6)
    assert moved[at > 0.21].max() == pytest.approx(SPEED)
    figures = next(message["figures"] for message in scene.said if "figures" in message)
    assert figures["slowed_ms"] == pytest.approx(0.4 * 95, abs=10)
    assert scene.memory.state.read().slipped_s == pytest.approx(figures["slowed_ms"] / 1e3)


def test_targets_wait_while_no_state_arrives_and_go_on_no_faster(scene):
    scene.stream(0.1, 8)
    scene.at(0.2, lambda: setattr(scene.arm, "silent", True))
    scene.at(0.26, lambda: setattr(scene.arm, "silent", False))
    scene.run(0.45)
    assert not scene.faults
    moved = np.diff(targets(scene)[:, 0]) / TICK
    at = np.array(scene.arm.times("servo"))[1:] - START
    assert moved.max() == pytest.approx(SPEED)
    np.testing.assert_allclose(moved[(at > 0.2 + WAITS_AFTER_S + 2 * TICK) & (at < 0.26)], 0.0, atol=1e-9)
    assert scene.memory.state.read().slipped_s == pytest.approx(0.06 - WAITS_AFTER_S, abs=2 * TICK)


def test_targets_that_waited_too_long_for_a_state_are_a_fault_that_says_so(scene):
    scene.stream(0.1, 20)
    scene.at(0.2, lambda: setattr(scene.arm, "silent", True))
    scene.run(0.6)
    assert "behind its targets: the controller has sent no state for 0.1" in scene.faults[0]


def test_reading_alone_neither_streams_nor_feeds(monkeypatch):
    scene = Scene(monkeypatch, control=False)
    scene.stream(0.1, 5)
    scene.run(0.5)
    assert scene.arm.calls == []


def test_a_late_tick_is_not_made_up_for_by_faster_ones(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene, "now", scene.now + 0.03))
    scene.run(0.8)
    times = scene.arm.times("servo")
    gaps = [later - sooner for sooner, later in pairwise(times)]
    steps = np.diff(targets(scene)[:, 0])
    assert steps.max() <= SPEED * TICK * 1.001
    assert max(gaps) == pytest.approx(0.03 + TICK, abs=TICK)
    assert scene.memory.state.read().slipped_s == pytest.approx(0.03, abs=2e-3)


def test_a_motion_does_not_begin_where_the_controller_holds_the_arm_elsewhere(scene):
    scene.arm.held = np.full(6, 0.35)
    scene.stream(0.1, 5)
    scene.run(0.4)
    assert len(scene.faults) == 1
    assert "the measured posture is 0.150 rad away from where the controller holds the arm" in scene.faults[0]
    assert scene.arm.times("servo") == []
    assert scene.memory.state.read().status == Status.FAILED


LINKS = [list(pose_of((0.0, 0.0, 0.1), (0.0, 1.0, 0.0)))] * 7


def know_the_tool(scene):
    """Tell the worker the kinematics, and report the tool of the arm's posture from then on."""
    check = ToolCheck(LINKS)
    type(scene.arm).tool = property(lambda arm: check.pose(arm.q + arm.told_q_off), lambda arm, value: None)
    scene.arm.told_q_off = np.zeros(6)
    scene.channel.send({"order": "kinematics", "links": LINKS})


def test_the_tool_is_compared_before_the_first_target_every_time(scene, monkeypatch):
    monkeypatch.setattr(FakeController, "tool", None, raising=False)
    know_the_tool(scene)
    scene.stream(0.1, 5)
    scene.at(0.34, lambda: scene.order("stop"))
    scene.at(0.9, lambda: setattr(scene.arm, "told_q_off", np.full(6, 0.1)))
    scene.stream(1.0, 5)
    scene.run(1.5)
    assert len(scene.faults) == 1 and "away from where its joint angles put it" in scene.faults[0]
    assert scene.arm.times("servo")  # of the first motion
    assert max(scene.arm.times("servo")) < START + 0.9
    assert scene.memory.state.read().status == Status.FAILED


def test_the_tool_is_compared_while_the_arm_moves(scene, monkeypatch):
    monkeypatch.setattr(FakeController, "tool", None, raising=False)
    know_the_tool(scene)
    scene.arm.time = lambda: scene.now
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "told_q_off", np.full(6, 0.1)))
    scene.run(1.0)
    assert len(scene.faults) == 1 and "away from where its joint angles put it" in scene.faults[0]
    assert scene.became(Status.BRAKING)[0] - (START + 0.3) == pytest.approx(0.0, abs=2 * TICK)


@pytest.mark.parametrize("scaling", [0.5, float("nan")])
def test_an_arm_that_the_controller_slows_down_is_stopped_after_a_moment(scene, scaling):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "scaling", scaling))
    scene.run(1.0)
    assert len(scene.faults) == 1 and "the controller slows the arm down to" in scene.faults[0]
    assert scene.became(Status.BRAKING)[0] - (START + 0.3) == pytest.approx(0.2, abs=3 * TICK)


def test_a_short_dip_of_the_controller_s_speed_is_no_fault(scene):
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "scaling", 0.5))
    scene.at(0.45, lambda: setattr(scene.arm, "scaling", 1.0))
    scene.run(0.8)
    assert scene.faults == []


def test_a_lie_about_the_posture_brakes_the_arm_on_its_way_and_latches(scene):
    scene.arm.time = lambda: scene.now
    scene.stream(0.1, 20)
    scene.at(0.3, lambda: setattr(scene.arm, "q", scene.arm.q + 0.5))
    scene.run(1.0)
    assert len(scene.faults) == 1 and "the state cannot be true" in scene.faults[0]
    assert Status.BRAKING in [status for _, status in scene.statuses]
    assert scene.memory.state.read().status == Status.FAILED
