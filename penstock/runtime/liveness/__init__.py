"""Decides which processes are alive: heartbeat, reaper, outages; and does the housekeeping."""
