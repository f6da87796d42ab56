#!/usr/bin/env bash
# Lint, types and tests, from a fresh clone. Arguments go to pytest: launch/test.sh -m slow
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" dev

ruff check .
ruff format --check .
mypy
pytest "$@"
