"""Everything that happens to a run beside its plan: start, claim, wait, signal, cancel, revive, migrate."""
