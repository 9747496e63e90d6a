"""`penstock demo`: shows in the terminal that a pipeline survives the death of its workers."""
