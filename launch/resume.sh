#!/usr/bin/env bash
# Resume one training: launch/resume.sh RUN [--steps N]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" video
run=${1:?give the run directory to resume, for example checkpoints/first_run-20260101-120000}
shift
cd "$OLDPWD"  # paths are the caller's
exec td3robot train --resume "$run" "$@"
