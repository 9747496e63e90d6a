"""`penstock demo`: a pipeline that survives the death of its workers, shown in the terminal."""
