"""What runs: the pump and its executors, heartbeat, housekeeping, supervisor. No SQL here."""
