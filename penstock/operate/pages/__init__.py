"""Queries for the pages of the dashboard: each is bounded, and its cost does not grow with history."""
