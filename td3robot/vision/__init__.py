"""Seeing objects with tags: which tags are where, cameras and their frames, and poses from what is detected."""
