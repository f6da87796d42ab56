"""The simulated arm in MuJoCo, and what makes it differ from its model."""
