"""From a checkpoint to a physical arm: check, watch, confirm, run, record and report. No torch here."""
