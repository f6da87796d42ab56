"""A stand-in for an FR3: franka-sim in an environment of its own."""
