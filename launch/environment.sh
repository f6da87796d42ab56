# Sourced by the other scripts: goes to the project's root and makes .venv with the extras asked for.
# Usage: source environment.sh EXTRAS   (for example: source environment.sh video)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ ! -x .venv/bin/pip ]; then
    python=${PYTHON:-python3}
    if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
        echo "td3robot needs Python 3.11 to 3.13, and '$python' is not one; set PYTHON=/path/to/python3.11" >&2
        exit 2
    fi
    echo "making .venv" >&2
    "$python" -m venv --clear .venv || {
        rm -rf .venv
        echo "could not make .venv; on Debian and Ubuntu: apt install python3-venv" >&2
        exit 2
    }
fi
# One stamp for each set of extras, holding what was installed; an interrupted install leaves none.
stamp=".venv/.installed-${1//,/-}"
if ! cmp -s pyproject.toml "$stamp"; then
    echo "installing td3robot[$1] into .venv; the first time takes some minutes" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$1]" || {
        echo "the installation failed; see the message above, then run this again" >&2
        exit 2
    }
    cp pyproject.toml "$stamp"
fi
export PATH="$PWD/.venv/bin:$PATH"
