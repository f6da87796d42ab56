#!/usr/bin/env bash
# Lint, types and tests, from a fresh clone. Arguments go to pytest: launch/test.sh -m slow
# An FR3's tests need its model and client (500 MB) and its simulator in an environment of its own; where these cannot
# be had, or with TD3ROBOT_TEST_FRANKA=no, they are skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" dev

without_franka() { echo "the FR3's tests that need its model, client or simulator are skipped: see the message above" >&2; }
simulator=
trap '[ -z "$simulator" ] || kill "$simulator" 2> /dev/null || true' EXIT
if [ "${TD3ROBOT_TEST_FRANKA:-yes}" = yes ]; then
    if (source launch/environment.sh franka); then
        launch/franka_sim.sh > .venv/.franka-sim & simulator=$!  # meanwhile, lint and types
    else
        without_franka
    fi
fi
ruff check .
ruff format --check .
mypy
if [ -n "$simulator" ]; then
    wait "$simulator" || without_franka
    simulator=
fi
# Two at a time: many tests wait for a process, a controller or a clock. -n 0 runs them one after another.
pytest -n 2 "$@"
