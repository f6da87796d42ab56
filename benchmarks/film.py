"""Make the README's moving picture: the first seconds of some episodes of a released policy, as an animated WebP.

Usage: python benchmarks/film.py CHECKPOINT OUT.webp    (extra `video`)
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from td3robot import load_policy
from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.renderer import Renderer
from td3robot.policy.checkpoint import Checkpoint, find

SEEDS, SECONDS = (7, 8), 4.2
WIDTH, HEIGHT = 720, 420
# Of WebP, 0 to 100; frames that take less without loss have none, or flat parts show blocks.
QUALITY = 80


def main() -> None:
    """Play the episodes and write the film."""
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    config = Checkpoint(find(checkpoint)).config(["environment.disturbance=off"]).environment
    assert isinstance(config, RobotEnvironmentConfig)
    first, *others = (Image.fromarray(frame) for frame in frames(config, checkpoint))
    period_ms = round(1e3 / config.robot.control_rate_hz)
    first.save(out, save_all=True, append_images=others, duration=period_ms, loop=0, quality=QUALITY, allow_mixed=True)
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


def frames(config: RobotEnvironmentConfig, checkpoint: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames (height, width, 3) of all episodes."""
    policy, environment = load_policy(checkpoint), make_robot_env(config)
    renderer = Renderer(environment.robot.spec, config.task.objects(), WIDTH, HEIGHT)
    camera = renderer._camera
    camera.lookat[:] = [0.0, 0.36, 0.27]
    camera.distance, camera.azimuth, camera.elevation = 1.15, 152.0, -24.0
    for seed in SEEDS:
        observation, _ = environment.reset(seed=seed)
        for _ in range(round(SECONDS * config.robot.control_rate_hz)):
            yield renderer.draw(environment.world, np.array([0.0, 0.0, -1.0]))  # the goal is out of sight
            observation, *_ = environment.step(policy.act(observation))


if __name__ == "__main__":
    main()
