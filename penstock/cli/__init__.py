"""The command line: `penstock`. It holds no SQL and no rules; it asks `penstock.operate` and shows the answer."""

from penstock.cli.main import main

__all__ = ["main"]
