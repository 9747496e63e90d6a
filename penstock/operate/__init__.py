"""Queries and actions of an operator: one set, for the command line and for the dashboard."""
