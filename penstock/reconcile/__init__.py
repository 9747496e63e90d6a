"""Reconcilers: pipelines over the user's own rows. The row is the work; its claim is kept in columns of its own."""
