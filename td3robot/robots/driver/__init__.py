"""The parts of every physical arm's driver: a worker process that streams targets, and the robot in front of it.

A vendor adds one link (``link.py``), which is the connection that the worker holds, and one robot (``robot.py``).
"""
