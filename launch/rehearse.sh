#!/usr/bin/env bash
# Rehearse a deployment against a simulated controller: launch/rehearse.sh [CHECKPOINT] [options of td3robot rehearse]
# A policy for an FR3 gets the extra `franka` and the environment of its stand-in (launch/franka_sim.sh).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
    set -- "$root/checkpoints/ur5e_reach" "$@"
fi
extra=ur
checkpoint=$1
[ -e "$checkpoint" ] || checkpoint="$root/checkpoints/$1"  # a released policy by its name
if cat "$checkpoint"/config.yaml "$checkpoint"/*/config.yaml 2>/dev/null | grep -Eq '^ +arm: fr3$'; then
    extra=franka
fi
source "$root/launch/environment.sh" "$extra"
if [ "$extra" = franka ] && [ -z "${TD3ROBOT_FRANKA_SIM:-}" ]; then
    TD3ROBOT_FRANKA_SIM="$PWD/$(bash launch/franka_sim.sh)"
    export TD3ROBOT_FRANKA_SIM
fi
cd "$OLDPWD"  # paths are the caller's
exec td3robot rehearse "$@"
