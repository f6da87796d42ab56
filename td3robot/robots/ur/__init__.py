"""The Universal Robots driver: ur_rtde in a worker process, and Robotiq grippers through their URCap."""

# Number of joints of every UR arm.
JOINTS = 6
