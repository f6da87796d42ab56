#!/usr/bin/env bash
# Train a small run of the reach policy that can be resumed: checkpoints/my_first_run, 3,000 of 12,000 steps.
# (A released policy is saved without its replay buffer, and cannot be resumed.)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" video
run=checkpoints/my_first_run
if [ -e "$run" ]; then
    echo "$run is there already" >&2
else
    td3robot train ur5e_reach_quick --steps 3000 --set training.evaluate_every=1500 --out "$run"
fi
echo "resume it with: td3robot train --resume $run --more 3000" >&2
