"""How many rows the database touches for a batch: as many as are in it, times a few, whatever its statistics say.

scenes.py      what workers do, in batches of a known size
history.py     tables that are full, and statistics of what they once were
measuring.py   what a statement costs: by EXPLAIN ANALYZE, or by the counters of MariaDB
"""
