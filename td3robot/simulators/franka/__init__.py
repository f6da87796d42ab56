"""A stand-in for an FR3: franka-sim in its own Python environment."""
