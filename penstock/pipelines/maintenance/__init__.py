"""Work on runs between the transactions: timers, large expands, repair, retention."""
