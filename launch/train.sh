#!/usr/bin/env bash
# Start one training: launch/train.sh ur5e_reach_quick [options of td3robot train]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" video
cd "$OLDPWD"  # paths are the caller's
exec td3robot train "$@"
