"""What every physical arm's driver is made of: a worker process that streams targets, and the robot in front of it.

A vendor adds one link (``link.py``), the connection that the worker holds, and one robot (``robot.py``).
"""
