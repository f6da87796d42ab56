#!/usr/bin/env bash
# Lint, types and tests, from a fresh clone: launch/test.sh [--all] [arguments of pytest]
# Without --all: the tests that tell whether a change broke something, in some minutes. With it: everything but the long
# trainings (-m slow). That needs the optional packages (2 GB), and an FR3's model, client and simulator, which has an
# environment of its own; where these cannot be had, or with TD3ROBOT_TEST_FRANKA=no, an FR3's tests are skipped.
set -euo pipefail
all=no extras=test selected=()
if [ "${1:-}" = --all ]; then
    shift
    all=yes extras=dev selected=(-m "not slow")
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
simulator=
if [ "$all" = yes ] && [ "${TD3ROBOT_TEST_FRANKA:-yes}" = yes ]; then
    launch/franka_sim.sh > /dev/null & simulator=$!
fi
source launch/environment.sh "$extras"
if [ -n "$simulator" ]; then
    (source launch/environment.sh franka) && wait "$simulator" ||
        echo "the FR3's tests that need its model, client or simulator are skipped: see the message above" >&2
fi
SECONDS=0
ruff check .
ruff format --check .
mypy
# Two at a time: one waits for controllers and clocks for most of it. -n 0 runs them one after another.
pytest -n 2 "${selected[@]}" "$@" || {
    status=$?
    [ "$status" = 1 ] || exit "$status"
    echo "what failed is run again, alone: a test in real time fails where the computer was too busy for it" >&2
    pytest --last-failed "${selected[@]}" "$@"
}
echo "lint, types and tests passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"
