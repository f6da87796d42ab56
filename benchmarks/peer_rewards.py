"""Success beside the ``compute_reward`` of panda-gym and Gymnasium-Robotics, on states of the hand-written policies.

In an environment of its own: pip install -e . panda-gym gymnasium-robotics. Their environments are not made: only their
functions are called, with this project's tolerances.

Example: python benchmarks/peer_rewards.py --episodes 10
"""

import argparse
import json
from importlib import import_module
from typing import Any

import mujoco
import numpy as np

import td3robot  # noqa: F401  # registers the ids
from td3robot.build import make_environment
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.registration import RELEASED
from td3robot.tasks.interface import NOTHING_HELD, Transition
from td3robot.tasks.push import OBJECT
from td3robot.tasks.scripted import script_of

PANDA, ROBOTICS = "panda_gym.envs.tasks", "gymnasium_robotics.envs"
# Per id: where the other function is, and whether success here asks for rest alone beside it.
PEERS = {
    "td3robot/UR5eReach-v0": [(f"{PANDA}.reach", "Reach"), (f"{ROBOTICS}.fetch.fetch_env", "MujocoFetchEnv")],
    "td3robot/UR5ePush-v0": [(f"{PANDA}.push", "Push"), (f"{ROBOTICS}.fetch.fetch_env", "MujocoFetchEnv")],
    "td3robot/UR5ePlace-v0": [(f"{PANDA}.pick_and_place", "PickAndPlace")],
    "td3robot/UR5eReachPose-v0": [(f"{ROBOTICS}.shadow_dexterous_hand.manipulate", "MujocoManipulateEnv")],
}
SLOW_M_S = 0.02


def quaternion(rotation: Any) -> Any:
    """Return the quaternion (4,) of a rotation (3, 3)."""
    found = np.zeros(4)
    mujoco.mju_mat2Quat(found, np.ascontiguousarray(rotation).ravel())
    return found


def goals_of(batch: Any) -> tuple[Any, Any]:
    """Return what was achieved and desired (k,), as the other packages have it: a position, or a pose (7,)."""
    state, goals, task = batch.state, batch.goals, batch.task
    if task.tilts_tool:
        achieved, desired = (state.tcp_position, state.tcp_rotation), (goals.position, goals.rotation)
        return tuple(np.concatenate([each[0][0], quaternion(each[1][0])]) for each in (achieved, desired))
    if (points := task.goal_points(state, goals)) is not None:
        return points.achieved[0], points.desired[0]
    lay = goals.objects[OBJECT].position[0]  # it is set down at this height
    return state.objects[OBJECT].position[0], np.array([*goals.position[0, :2], lay[2]])


def peer_of(place: str, name: str, config: Any) -> Any:
    """Make what the other function needs of its environment, and nothing else."""
    peer = object.__new__(getattr(import_module(place), name))
    peer.reward_type, peer.distance_threshold = "sparse", config.tolerance_m
    peer.rotation_threshold = getattr(config, "tolerance_rad", None)
    peer.target_position, peer.target_rotation, peer.ignore_z_target_rotation = "fixed", "xyz", False
    return peer


def compared(released: str, episodes: int) -> dict[str, Any]:
    """Play a hand-written policy, and count the states in which the two agree."""
    config = RobotEnvironmentConfig.model_validate(RELEASED[released])
    environment: Any = make_environment(config).unwrapped
    script = script_of(config, environment.task.layout, environment.robot.spec)
    peers = [peer_of(place, name, config.task) for place, name in PEERS[released]]
    counts = {"states": 0, "successes here": 0, "successes there": 0, "only here": 0, "only there, at rest": 0}
    still, no = np.zeros((1, environment.action_space.shape[0]), np.float32), np.zeros(1, np.bool_)
    for episode in range(episodes):
        observation, _ = environment.reset(seed=episode)
        over = False
        while not over:
            observation, *_, over, _ = environment.step(script.act(observation))
            batch = environment.batch
            state = batch.state
            ours = batch.task.score(Transition(state, state, batch.goals, still, still, no)).achieved[0]
            achieved, desired = goals_of(batch)
            there = {float(peer.compute_reward(achieved, desired, {})) == 0.0 for peer in peers}
            assert len(there) == 1, "the other packages disagree with each other"
            theirs = there.pop()
            rests = np.linalg.norm(state.tcp_velocity[0]) <= SLOW_M_S and state.held[0] == NOTHING_HELD
            counts["states"] += 1
            counts["successes here"] += bool(ours)
            counts["successes there"] += theirs
            counts["only here"] += bool(ours and not theirs)
            counts["only there, at rest"] += bool(theirs and rests and not ours)
    environment.close()
    return counts


def main() -> None:
    """Print a line of JSON for each id."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10)
    options = parser.parse_args()
    for released, peers in PEERS.items():
        names = [f"{place.split('.')[0]}.{name}" for place, name in peers]
        print(json.dumps({"id": released, "peers": names} | compared(released, options.episodes)), flush=True)


if __name__ == "__main__":
    main()
