"""Environments: a task on a robot behind the guard, as Gymnasium knows it."""
