"""What a policy needs to play: the actor in NumPy, its scaling, its contract, its checkpoint. No torch."""
