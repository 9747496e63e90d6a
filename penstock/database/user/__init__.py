"""Connections that the caller brings, and connections of ours in the hands of user code."""
