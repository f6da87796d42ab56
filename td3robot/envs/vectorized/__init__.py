"""Many environments of one process, stepped as arrays."""
