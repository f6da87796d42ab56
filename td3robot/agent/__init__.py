"""The learner: TD3's networks, its update, its replay memory, and the policy that comes out."""
