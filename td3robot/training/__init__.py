"""Training: collecting experience, updating the agent, evaluating, saving, resuming."""
