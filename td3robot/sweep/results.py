"""Results of a sweep: figures of every setting, the best run, a plot."""

import json
from statistics import median
from typing import Any

import numpy as np

from td3robot import atomic
from td3robot.format import counted
from td3robot.metrics import Chart, Series
from td3robot.sweep.sweep import Run, Setting, Sweep

RESULTS, PICTURE = "sweep.json", "sweep.png"
# At most this many settings are plotted; more could not be told apart.
DRAWN = 10
# What is reported of a run: properties of its progress.
MEASURES = ("score", "best", "last")


def figures(sweep: Sweep) -> dict[str, Any]:
    """Return the figures of a sweep, the best setting first.

    Returns:
        ``seeds``, ``steps``, ``measure`` (``success_rate`` or ``mean_return``), ``best_run`` (of the best setting), and
        ``settings``: each with its ``overrides``, its ``runs``, and of their ``score`` (the mean over a run's
        evaluations), ``best`` and ``last`` evaluation ``median``, ``low`` and ``high``.
    """
    settings = ranked(sweep)
    best = max(settings[0].runs, key=_rank_of_run, default=None) if settings else None
    if best is not None and not best.progress.values:
        best = None
    return {
        "directory": str(sweep.directory),
        "seeds": sweep.plan.seeds,
        "steps": sweep.plan.steps,
        "measure": measure(sweep),
        "best_run": None if best is None else str(best.job.directory),
        "settings": [_setting_figures(setting) for setting in settings],
    }


def measure(sweep: Sweep) -> str:
    """Return the name of the value by which evaluations are compared."""
    return "success_rate" if any(run.progress.success for run in sweep.runs) else "mean_return"


def ranked(sweep: Sweep) -> list[Setting]:
    """Return the settings sorted by median score, the best first and those without an evaluation last."""
    return sorted(sweep.settings.values(), key=_rank, reverse=True)


def write_results(sweep: Sweep, found: dict[str, Any]) -> None:
    """Write the figures, ``sweep.json``, and ``sweep.png`` into the sweep's directory.

    Raises:
        OSError: One cannot be written; what was there before still is.
    """
    from td3robot.report.picture import draw

    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    atomic.write_text(sweep.directory / RESULTS, text)
    with atomic.Replacement(sweep.directory / PICTURE) as temporary:
        draw([chart(sweep)], "").savefig(temporary, dpi=110)


def chart(sweep: Sweep) -> Chart:
    """Return each setting's evaluations over the steps: the median and range of its seeds."""
    settings = [setting for setting in ranked(sweep) if any(run.progress.values for run in setting.runs)]
    success = measure(sweep) == "success_rate"
    curves = [_curve(setting, color, 100.0 if success else 1.0) for color, setting in enumerate(settings[:DRAWN])]
    left_out = len(settings) - DRAWN
    title = (
        f"{'success' if success else 'return'} in evaluations, median and range of {counted(sweep.plan.seeds, 'seed')}"
    )
    return Chart(
        title + (f"; {left_out} worse settings left out" if left_out > 0 else ""), curves,
        unit="%" if success else "", span=(0.0, 100.0) if success else None,
    )  # fmt: skip


def _curve(setting: Setting, color: int, scale: float) -> Series:
    curves = [dict(zip(run.progress.steps, run.progress.values, strict=False)) for run in setting.runs]
    steps = sorted({step for curve in curves for step in curve})
    values = [[scale * curve[step] for curve in curves if step in curve] for step in steps]
    middle, low, high = (np.array([ends(each) for each in values]) for ends in (median, min, max))
    label = setting.label or "as configured"
    return Series(label, np.array(steps, np.float64), middle, low, high, color=color, marked=True)


def _setting_figures(setting: Setting) -> dict[str, Any]:
    return {
        "number": setting.number,
        "overrides": list(setting.overrides),
        **{name: _spread(setting, name) for name in MEASURES},
        "runs": [_run_figures(run) for run in setting.runs],
    }


def _run_figures(run: Run) -> dict[str, Any]:
    found = {
        "directory": str(run.job.directory),
        "seed": run.seed,
        "state": run.state,
        "step": run.progress.step,
        "resumes": run.resumes,
        **{name: getattr(run.progress, name) for name in MEASURES},
    }
    return found | ({"error": run.reason} if run.reason else {})


def _spread(setting: Setting, name: str) -> dict[str, float] | None:
    found = [value for run in setting.runs if (value := getattr(run.progress, name)) is not None]
    return {"median": median(found), "low": min(found), "high": max(found)} if found else None


def _rank(setting: Setting) -> tuple[bool, float]:
    spread = _spread(setting, "score")
    return spread is not None, 0.0 if spread is None else spread["median"]


def _rank_of_run(run: Run) -> tuple[bool, float]:
    return run.progress.score is not None, run.progress.score or 0.0
