"""Episodes that a task's hand-written policy plays."""

from td3robot.build import make_robot_env
from td3robot.tasks.scripted import script_of


def successes_of_script(config, episodes):
    """Count the successes of the first seeds' episodes."""
    environment = make_robot_env(config)
    script = script_of(config, environment.task.layout, environment.robot.spec)
    successes = 0
    for seed in range(episodes):
        observation, _ = environment.reset(seed=seed)
        ended = False
        while not ended:
            observation, _, _, ended, info = environment.step(script.act(observation))
        successes += info["success"]
    environment.close()
    return successes
