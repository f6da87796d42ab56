"""TD3's update compiled by numba: the same numbers as :meth:`td3robot.learning.td3.TD3.update`, up to rounding."""
