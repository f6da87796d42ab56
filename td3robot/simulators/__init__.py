"""A UR5e controller with a 2F-85 on loopback: its network ports, its stops, and MuJoCo in place of the arm."""
