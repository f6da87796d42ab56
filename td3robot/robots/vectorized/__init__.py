"""Many simulated arms at once, as arrays over the environments of a process."""
