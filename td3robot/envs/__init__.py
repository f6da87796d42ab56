"""Gymnasium environments: a task on a robot, behind the guard."""
