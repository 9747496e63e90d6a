"""PostgreSQL: its dialect, its one-statement claims and settles, and libpq's pipeline mode."""
