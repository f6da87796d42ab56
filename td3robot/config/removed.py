"""Settings that earlier versions had. A file that sets one of them is refused with what replaces it."""

from collections.abc import Iterable, Mapping

# By the setting's place in a run's file (``environment.task.near_m``), or in a cell's, which begins with ``cell.``.
# Each sentence follows "NAME is gone: ", and says what to write instead, or that nothing is needed.
REMOVED: Mapping[str, str] = {
    "environment.action.per_axis": "dead zone and exponent act on each axis, always; leave it out",
    "environment.action.wait_for_gripper": "the arm rests while the fingers close, always; leave it out",
    "environment.action.damping_m": "it is DAMPING in td3robot/envs/actions.py; leave it out",
    "environment.action.orientation_gain_hz": "it is ORIENTATION_GAIN_HZ in td3robot/envs/actions.py; leave it out",
    "environment.action.turn_rad_s": "it is TURN_RAD_S in td3robot/config/robot.py; leave it out",
    "environment.action.response_s": "it is RESPONSE_S in td3robot/envs/actions.py; leave it out",
    "environment.task.near_m": "it is NEAR_M in the task's file; leave it out",
    "environment.task.gripper": "the gripper's closed fraction is drawn from its whole range; leave it out",
    "environment.task.rest_speed_m_s": "it is REST_SPEED_M_S in td3robot/tasks/grasp.py; leave it out",
    "environment.task.full_turn_rad_s": "it is FULL_TURN_RAD_S in td3robot/tasks/grasp.py; leave it out",
    "environment.task.practice_hold_s": "it is PRACTICE_HOLD_S in td3robot/tasks/grasp.py; leave it out",
    "environment.task.practice_whole_share": "it is PRACTICE_WHOLE_SHARE in td3robot/tasks/grasp.py; leave it out",
    "environment.task.practice_offset_m": "it is PRACTICE_OFFSET_M in td3robot/tasks/grasp.py; leave it out",
    "environment.task.practice_turn_rad": "it is PRACTICE_TURN_RAD in td3robot/tasks/grasp.py; leave it out",
    "environment.task.practice_lifted_share": "it is PRACTICE_LIFTED_SHARE in td3robot/tasks/grasp.py; leave it out",
    "cell.ur.gain": "it is robot.servo_gain, which training simulates, too",
    "cell.ur.lookahead_s": "it is robot.servo_lookahead_s, which training simulates, too",
    "cell.tracker.max_jump_m": "what moved is judged by its speed and by the tool's own way; leave it out",
    "agent.actor_hidden": "agent.hidden has the widths of all networks",
    "agent.critic_hidden": "agent.hidden has the widths of all networks",
    "agent.actor_learning_rate": "agent.learning_rate is that of all networks",
    "agent.critic_learning_rate": "agent.learning_rate is that of all networks",
    "agent.learning_rate_drop": "the learning rate always drops to a fifth, after agent.learning_rate_drop_step",
    "agent.random_share": "agent.exploration_noise explores; raise it instead",
    "agent.random_share_steps": "agent.exploration_noise explores; raise it instead",
    "agent.random_action_steps": "agent.exploration_noise explores; raise it instead",
    "training.undisturbed_by_part": "training.undisturbed_share always counts for arm, gripper and camera one by one",
    "training.environment_processes": "it follows from the machine's cores, and results never depended on it",
    "training.vectorized": "environments of one process always step together",
    "training.torch_threads": "it is called training.threads, and is at least 1",
    "training.keep_last": "the newest 2 checkpoints are kept; copy others away",
    "training.keep_every": "the newest 2 checkpoints are kept; copy others away",
    "training.keep_best": "the best 3 policies are kept",
    "training.answer_limit_s": "an environment always has 600 s to answer",
}


def removed_settings(names: Iterable[str]) -> str:
    """Return one sentence about the settings of some names that are gone; an empty one if none is.

    Settings with the same replacement share a clause.
    """
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name in REMOVED:
            reasons.setdefault(REMOVED[name], []).append(name)
    return "; ".join(
        f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone: {reason}" for reason, gone in reasons.items()
    )
