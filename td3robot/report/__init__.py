"""Reports of runs and sessions as pages, replays of records, and their export. No torch here."""
