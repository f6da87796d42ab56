"""Sweeps: many whole trainings of one configuration, each with its own settings and seed.

Every run is an ordinary run directory, trained by ``td3robot train`` in its own process, so that the result is the same
as alone.
"""
