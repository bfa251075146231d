"""The calls of the broker, a file for each kind. Each file has a list ROUTES."""
