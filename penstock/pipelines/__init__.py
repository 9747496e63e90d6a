"""Pipelines: definitions and plans are pure; applying a plan to the database is a matter of its own."""
