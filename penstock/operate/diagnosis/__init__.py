"""Finds faults and reasons: damaged rows, why a job or a run waits, types between steps that cannot fit."""
