"""Tasks: what is asked of the arm. Pure functions of states; no simulator, no clock, no global randomness."""
