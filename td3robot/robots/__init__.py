"""Robots: what an arm is, how it moves, and the guard in front of it."""
