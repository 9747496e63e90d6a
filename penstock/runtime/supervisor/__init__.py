"""Forks worker processes, watches them, replaces the dead and takes back their work."""
