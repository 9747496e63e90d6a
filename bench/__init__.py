"""Benchmarks: Penstock and its peers on one PostgreSQL, in one run, interleaved.

python -m bench                 everything (make bench)
python -m bench --peers none    Penstock and the bare driver only

systems/      one adapter per system, all with the same few verbs; each runs in its own interpreter
workloads/    what is measured
agent.py      the process in which an adapter works; talks JSON lines with the driver
driver.py     starts agents; server.py starts PostgreSQL; counting.py counts statements on the wire
report.py     the table and the JSON file
parts.py      python -m bench.parts: what each part of the fast path is worth by itself
"""
