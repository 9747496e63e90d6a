"""One stream of typed events, to which logs, metrics and tests listen; and the fault points of tests."""
