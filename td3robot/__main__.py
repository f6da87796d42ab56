"""Run the command line as ``python -m td3robot``."""

from td3robot.cli import main

main()
