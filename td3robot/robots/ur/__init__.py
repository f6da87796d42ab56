"""The Universal Robots driver: ur_rtde in a worker process, and Robotiq grippers through their URCap."""

# Every UR arm has so many.
JOINTS = 6
