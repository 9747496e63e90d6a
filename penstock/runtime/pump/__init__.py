"""Moves work between the database and the executors, one transaction a turn."""
