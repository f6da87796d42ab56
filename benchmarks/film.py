"""Make the README's moving picture: the first seconds of some episodes of a released policy, as an animated WebP.

Usage: python benchmarks/film.py CHECKPOINT OUT.webp    (extra `video`)
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from td3robot import load_policy
from td3robot.build import make_robot_env
from td3robot.config import RobotEnvironmentConfig
from td3robot.envs.renderer import Renderer
from td3robot.policy.checkpoint import Checkpoint, find

SEEDS, SECONDS = (7, 8), 4.2
WIDTH, HEIGHT = 720, 420
# Of WebP, 0 to 100.
QUALITY = 60


def main() -> None:
    """Play the episodes and write the film."""
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    config = Checkpoint(find(checkpoint)).config(["environment.disturbance=off"]).environment
    assert isinstance(config, RobotEnvironmentConfig)
    rate = config.robot.control_rate_hz
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{WIDTH}x{HEIGHT}", "-r", f"{rate:g}", "-i", "-",
        "-c:v", "libwebp_anim", "-quality", str(QUALITY), "-loop", "0", str(out),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        for frame in frames(config, checkpoint):
            encoder.stdin.write(frame.tobytes())
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
