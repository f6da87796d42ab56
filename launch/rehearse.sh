#!/usr/bin/env bash
# Rehearse a deployment against the stand-in: launch/rehearse.sh [CHECKPOINT] [options of td3robot rehearse]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" ur
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
    set -- "$PWD/checkpoints/ur5e_reach" "$@"
fi
cd "$OLDPWD"  # paths are the caller's
exec td3robot rehearse "$@"
