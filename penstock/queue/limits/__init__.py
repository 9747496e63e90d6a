"""Concurrency and rate limits.

`admission` decides at the claim which jobs may run, `slots` counts what is used, `waiting_line` holds the jobs that
wait for room, `upkeep` gives room that became free to the next in line.
"""
