"""What users call, written once over a `Backend`: `Connection` and `Queue`."""
