"""Robots: arm models, how they move, and the guard in front of them."""
