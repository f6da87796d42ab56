"""What running a policy needs: the actor in NumPy, its scaling, its contract, its checkpoint. No torch."""
