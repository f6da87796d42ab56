"""A person at a terminal, over a pseudo-terminal."""

import os
import pty
import signal
import time

import pytest

from td3robot.deploy.operator import Keyboard, OperatorStop, Signals, present_operator
from td3robot.errors import ConfigError, RobotError


@pytest.fixture
def keys(monkeypatch):
    """Give a keyboard, and a function that presses its keys."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "r")
    monkeypatch.setattr("sys.stdin", stream)
    with present_operator() as keyboard:
        assert isinstance(keyboard, Keyboard)
        yield keyboard, lambda text: os.write(ours, text.encode())
    stream.close()
    os.close(ours)


def soon(condition):
    end = time.monotonic() + 2.0
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("key", [" ", "q", "\x1b"])
def test_a_stop_key_stops_and_keeps_stopped(keys, key):
    keyboard, press = keys
    assert not keyboard.stop_wanted()
    press("x")
    time.sleep(0.05)
    assert not keyboard.stop_wanted()
    press(key)
    assert soon(keyboard.stop_wanted)
    with pytest.raises(OperatorStop):
        keyboard.raise_if_stopped()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "the operator stopped the arm"),
        (signal.SIGTERM, "another program asked this one to end"),
        (signal.SIGHUP, "the terminal of this program was closed"),
    ],
)
def test_a_stop_says_who_stopped(keys, number, said):
    keyboard, _ = keys
    os.kill(os.getpid(), number)
    with pytest.raises(OperatorStop, match=said):
        keyboard.raise_if_stopped()


def test_an_offer_can_be_declined_without_stopping_anything(keys, monkeypatch):
    keyboard, press = keys
    for key, answer in (("\n", True), (" ", False)):
        monkeypatch.setattr(keyboard, "say", lambda text, key=key: press(f"x{key}"))
        assert keyboard.accepts("put it down?") is answer
    assert not keyboard.stop_wanted()


def test_a_signal_stops_and_a_second_one_ends_the_program(keys):
    keyboard, _ = keys
    os.kill(os.getpid(), signal.SIGINT)
    assert keyboard.stop_wanted()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("key", "periods"), [("\n", 10), ("s", 40), ("t", 1)])
def test_a_key_is_worth_a_time(keys, key, periods, monkeypatch):
    keyboard, press = keys
    monkeypatch.setattr(keyboard, "say", lambda text: press(f"x{key}"))
    assert keyboard.next_periods(20.0, "next the tool goes up") == periods


def test_keys_pressed_before_a_question_answer_nothing(keys, monkeypatch):
    keyboard, press = keys
    press("\n\n")
    time.sleep(0.05)
    monkeypatch.setattr(keyboard, "say", lambda text: press(" "))
    with pytest.raises(OperatorStop):
        keyboard.agree("the arm moves")


def test_without_a_keyboard_nobody_is_asked(monkeypatch, capfd):
    with open(os.devnull) as nothing:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", nothing)
        with present_operator() as operator:
            assert type(operator) is Signals
            with pytest.raises(ConfigError, match="no terminal"):
                operator.require_keys()
            with pytest.raises(RobotError, match="take it; nobody is at a keyboard"):
                operator.take("take it")
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(OperatorStop):
                operator.raise_if_stopped()
