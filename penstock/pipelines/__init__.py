"""Pipelines: a definition is described, planned and advanced; each run and each step is a row.

The rooms, in the order in which they may import each other:

    model        a definition as a value: nodes, edges, expressions (pure)
    plan         what follows from an ended step: values in, changes out (pure)
    define       the two spellings, compiled to one definition (no database)
    advance      a plan applied to rows, in the transaction that settled the step
    lifecycle    what else happens to a run: start, claim, wait, signal, cancel, revive, migrate
    maintenance  between the transactions: timers, large expands, repair, retention

The modules beside them are what users and the app hold: `pipeline`, `run`, `run_control`, `registry`, and `engine`,
through which the queue calls the rest.
"""
