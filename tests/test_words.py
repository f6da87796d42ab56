"""Figures as sentences."""

from td3robot.cli.benchmarks import environment_line, learner_line
from td3robot.cli.evaluation import evaluation_lines
from td3robot.cli.rehearsal import driver_text
from td3robot.envs.playing import Evaluation
from td3robot.format import achieved
from td3robot.statistics import wilson_interval

FIGURES = Evaluation(
    success_rate=0.99, success_ci95=wilson_interval(198, 200), episodes=200, mean_return=12.34, mean_steps=100.0,
    mean_final_distance_m=0.0024, max_tcp_speed_m_s=0.2391, max_joint_speed_rad_s=1.388,
    guard_interventions={"any": 0.012, "lead": 0.003, "joint_speed": 0.009},
).to_json()  # fmt: skip


def test_success_has_its_count_interval_and_distance():
    assert achieved(FIGURES, "reached") == "reached 198 of 200 (96.4 to 99.7 %), 2.4 mm from the goal"


def test_an_evaluation_is_four_lines_with_units():
    assert evaluation_lines(FIGURES, "reached", 20.0) == [
        "reached 198 of 200 (96.4 to 99.7 %), 2.4 mm from the goal",
        "mean return 12.3 in 100 steps (5.0 s)",
        "fastest tool 239 mm/s, fastest joint 1.39 rad/s",
        "the guard changed 1.2 % of the steps (joint speed 0.9 %, arm too far behind its command 0.3 %)",
    ]


def test_an_environment_without_success_says_so():
    plain = FIGURES | dict.fromkeys(
        ("success_rate", "success_ci95", "mean_final_distance_m", "max_tcp_speed_m_s", "guard_interventions")
    )
    first, second = evaluation_lines(plain, "succeeded in")
    assert first == "200 episodes; this environment does not say what success is"
    assert second == "mean return 12.3 in 100 steps"


def test_speeds_have_units():
    learner = {
        "learner": "compiled", "updates_per_second": 1234.5, "slowest": 1200.2, "fastest": 1250.9, "threads": 1,
        "batch_size": 256, "observation_size": 20, "action_size": 3,
    }  # fmt: skip
    assert learner_line(learner) == (
        "1,234 updates a second by the compiled learner (slowest pass 1,200, fastest 1,251); batches of 256, 1 thread, "
        "20 numbers observed, 3 in an action"
    )
    guarded = {"steps_per_second": 1000.0, "steps_per_second_without_guard": 1250.0, "guard_overhead": 0.25}
    assert environment_line(guarded) == (
        "1,000 steps a second; 1,250 without the guard, which makes a step 25.0 % longer"
    )
    together = {"physics_share": 0.5, "together": 8, "steps_per_second_together": 1600.4, "physics_share_together": 0.8}
    assert environment_line(guarded | together) == (
        "1,000 steps a second; 1,250 without the guard, which makes a step 25.0 % longer. 8 environments together: "
        "1,600 steps a second. Physics take 50.0 % of a step alone, and 80.0 % together"
    )


def test_a_driver_s_timing_is_said_in_words():
    figures = {"streamed": 1866, "stretched_ms": 3.243} | {
        f"{name}_{kind}_ms": value
        for name in ("period", "tick_late")
        for kind, value in (("p50", 8.001), ("p99", 8.173), ("max", 9.862))
    }
    assert driver_text(figures) == (
        "driver (median/99 %/most): 1,866 targets sent; between two targets 8.00/8.17/9.86 ms; "
        "the control tick late by 8.00/8.17/9.86 ms; control periods stretched by 3.2 ms in all"
    )
