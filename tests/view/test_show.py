"""Pace, pauses and events, with a page that only remembers."""

import numpy as np

from td3robot.errors import ConfigError, RobotError
from td3robot.state import RobotState
from td3robot.view.show import Page, Show, UiEvent
from td3robot.view.source import Snapshot, Source

STATE = RobotState(np.zeros(6), np.zeros(6), np.zeros(2), 0.0)


class Counted(Source):
    title, kind = "counted", "moments"
    workcell = None

    def __init__(self):
        self.moments, self.asked = 0, []

    def advance(self):
        if self.moments == 1000:
            raise RobotError("the arm no longer reports")
        self.moments += 1
        return Snapshot(STATE, lasts_s=0.05)

    def set_goal(self, position):
        raise ConfigError("out of reach")

    def next_episode(self):
        self.asked.append("next")


class Remembering(Page):
    url, ports = "http://nowhere", ()

    def __init__(self):
        self.watched_by, self.asked, self.drawn, self.refused, self.plays = 1, [], 0, [], True

    @property
    def watched(self):
        return bool(self.watched_by)

    def build(self, workcell):
        pass

    def draw(self, snapshot):
        self.drawn += 1

    def write(self, lines):
        self.lines = list(lines)

    def plot(self, charts):
        pass

    def events(self):
        asked, self.asked = self.asked, []
        return asked

    def playing(self, playing):
        self.plays = playing

    def refuse(self, sentence):
        self.refused.append(sentence)

    def close(self):
        pass


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += max(seconds, 1e-4)


def shown(seconds=0.0):
    source, page, clock = Counted(), Remembering(), Clock()
    show = Show(source, page, clock, clock.wait)
    run(show, clock, seconds)
    return source, page, clock, show


def run(show, clock, seconds):
    end = clock.now + seconds
    while clock.now < end:
        show.tick()


def test_it_keeps_the_source_s_own_pace():
    source, page, _, _ = shown(5.0)
    assert abs(source.moments - 100) <= 1
    assert page.drawn == source.moments


def test_twice_as_fast_it_draws_no_more_often_than_it_can_be_seen():
    source, page, clock, show = shown()
    page.asked = [UiEvent("speed", 4.0)]
    run(show, clock, 5.0)
    assert abs(source.moments - 400) <= 4
    assert page.drawn <= 160


def test_nobody_looks_and_nothing_is_played():
    source, page, clock, show = shown(1.0)
    page.watched_by = 0
    before = source.moments
    run(show, clock, 5.0)
    assert source.moments == before
    page.watched_by = 1
    run(show, clock, 1.0)
    assert abs(source.moments - before - 20) <= 2  # what was missed is not made up for


def test_pause_step_and_play():
    source, page, clock, show = shown(1.0)
    page.asked = [UiEvent("play")]
    run(show, clock, 1.0)
    paused = source.moments
    assert not page.plays
    page.asked = [UiEvent("step"), UiEvent("step")]
    run(show, clock, 1.0)
    assert source.moments == paused + 2
    page.asked = [UiEvent("play")]
    run(show, clock, 1.0)
    assert source.moments > paused + 15


def test_a_goal_that_cannot_be_had_is_refused_in_words():
    source, page, clock, show = shown()
    page.asked = [UiEvent("goal", np.zeros(3)), UiEvent("next")]
    run(show, clock, 0.2)
    assert page.refused == ["out of reach"]
    assert source.asked == ["next"]


def test_an_arm_that_no_longer_reports_is_said_once():
    source, page, clock, show = shown()
    source.moments = 1000
    run(show, clock, 2.0)
    assert page.refused == ["the arm no longer reports"]
    assert page.lines == ["the arm no longer reports"]
