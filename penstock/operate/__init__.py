"""What an operator sees and does: one set of queries and actions, for the command line and for dashboards."""
