"""Numbered, forward-only migrations. Each module has `upgrade(op, names)`; its position is its number."""
