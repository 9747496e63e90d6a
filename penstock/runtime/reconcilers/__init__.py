"""Runs the handlers of reconcilers: polls rows, dispatches them, renews their leases."""
