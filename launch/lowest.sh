#!/usr/bin/env bash
# Test with the lowest versions that pyproject.toml allows: launch/lowest.sh [FOLDER] [arguments of pytest]
# Makes FOLDER (default: .venv-lowest) with uv, from a package index; 6 GB with a PyTorch for GPUs. The quick tests then
# take as long as launch/test.sh. A bound that is untrue shows as a failed installation or a failed test: raise it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-.venv-lowest}
shift || true
extras=(--extra test --extra video --extra onnx --extra mcap --extra view --extra search)
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$folder/bin/uv" pip install --python "$folder/bin/python" --resolution lowest-direct -r pyproject.toml "${extras[@]}"
"$folder/bin/uv" pip install --python "$folder/bin/python" --no-deps -e .
exec "$folder/bin/python" -m pytest -n 2 "$@"
