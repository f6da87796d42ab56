#!/usr/bin/env bash
# From a fresh clone: install, train the reach policy from scratch, evaluate it, plot and film it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" video

run="$PWD/checkpoints/first_run-$(date +%Y%m%d-%H%M%S)"
td3robot train ur5e_reach_quick --out "$run"
td3robot eval "$run" --episodes 100
td3robot plot "$run"
video="$run/reach.mp4"
td3robot eval "$run" --episodes 5 --video "$video" --json >/dev/null || video="none (see the message above)"

cat <<END

Done. Everything is in $run:
  plot of the run           $run/training.png
  video of five episodes    $video
  figures over the steps    $run/metrics.csv, $run/evaluations.csv, and: tensorboard --logdir $run

Next:
  source $PWD/.venv/bin/activate
  td3robot inspect $run                          what the policy was trained for
  td3robot train --resume $run --more 30000      resume the training for 30,000 more steps
  td3robot eval $run --set environment.robot.backend=kinematic   the same policy on an arm without dynamics
END
