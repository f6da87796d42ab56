#!/usr/bin/env bash
# Deploy a policy to an arm, one mode at a time: launch/deploy.sh CHECKPOINT --robot CELL --mode check|shadow|confirm|run
# Read docs/deploy.md first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" ur
cd "$OLDPWD"  # paths are the caller's
exec td3robot deploy "$@"
