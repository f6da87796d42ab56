"""Learn: TD3, its replay and exploration, and the loop that trains it. The only package with torch."""
