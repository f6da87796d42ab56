"""The Franka driver: franka-rs in a worker process."""
