#!/usr/bin/env bash
# Install on the robot's computer only what check, shadow, confirm, run, recover and load_policy need, into .venv:
# no PyTorch, TensorBoard, matplotlib, plotly, Swift nor Robotics Toolbox. To train there, too: pip install -e '.[ur]'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -x .venv/bin/pip ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --disable-pip-version-check -r launch/robot.txt
.venv/bin/python -m pip install --disable-pip-version-check --no-deps -e .
