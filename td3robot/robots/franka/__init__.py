"""Franka arms: the driver, through franka-rs in a worker process."""
