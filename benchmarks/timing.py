"""Time from a measured state to a command: layout, normaliser, actor, action, guard."""

from time import perf_counter

from td3robot.build import make_robot_env
from td3robot.config import DISTURBANCES, RobotEnvironmentConfig
from td3robot.errors import EnvironmentFaultError
from td3robot.policy.policy import Policy
from td3robot.statistics import percentiles


def policy_step_ms(policy: Policy, config: RobotEnvironmentConfig, steps: int = 2000) -> dict[str, float]:
    """Time the whole step along simulated episodes, on a guard of its own.

    Returns:
        Percentiles [ms].

    Raises:
        EnvironmentFaultError: There were no steps.
    """
    environment = make_robot_env(config.model_copy(update={"disturbance": DISTURBANCES["off"]}))
    batch, times, over = environment.batch, [], True
    for seed in range(steps):
        if over:
            environment.reset(seed=seed)
        begin = perf_counter()
        (observation,) = batch.task.layout.pack(batch.task.observe(batch.seen, batch.seen_goals), 1)
        action = policy.act(observation)
        environment.preview(action)
        times.append(1e3 * (perf_counter() - begin))
        over = environment.step(action)[3]
    environment.close()
    found = percentiles(times)
    if found is None:
        raise EnvironmentFaultError("no step was timed; ask for at least one")
    return found
