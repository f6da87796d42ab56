"""The agents: a module for each, whose configuration registers it; imported when a run names it."""
