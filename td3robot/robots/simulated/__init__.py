"""The simulated arm in MuJoCo, and the disturbances that make it differ from its model."""
