#!/usr/bin/env bash
# Make the environment of the stand-in FR3, which pins an old NumPy and an old MuJoCo:
#   launch/franka_sim.sh [FOLDER]        (default: .venv-franka-sim)
# Needs a package index, and nothing else: franka-sim would clone its model from GitHub at first use, and is given the
# one in the wheel franky-sim instead, whose other dependencies are left out.
set -euo pipefail
folder=${1:-.venv-franka-sim}
python=${PYTHON:-python3}
wanted="franka-sim==1.1.7 franky-sim==1.0.4"
stamp="$folder/.installed"

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    echo "$folder/bin/python"
    exit 0
fi
# NumPy 1.26.4 has no wheels for Python 3.13.
if ! "$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))' 2>/dev/null; then
    echo "franka-sim pins NumPy 1.26.4, which needs Python 3.9 to 3.12; '$python' is not one: set PYTHON" >&2
    exit 3
fi
"$python" -m venv --clear "$folder" || {
    rm -rf "$folder"
    echo "could not make $folder; on Debian and Ubuntu: apt install python3-venv" >&2
    exit 2
}
pip="$folder/bin/python -m pip install --quiet --disable-pip-version-check"
if ! { $pip franka-sim==1.1.7 && $pip --no-deps franky-sim==1.0.4; } >&2; then
    rm -rf "$folder"
    echo "the installation failed; see the message above, then run this again" >&2
    exit 2
fi
printf '%s' "$wanted" > "$stamp"
echo "$folder/bin/python"
