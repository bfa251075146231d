"""Quiver: a durable message queue whose log is a table."""
