"""Sweeps: many whole trainings of one configuration, each with its own settings and seed.

Every run is an ordinary run directory, trained by ``td3robot train`` in a process of its own, so that it is what it
would be alone.
"""
