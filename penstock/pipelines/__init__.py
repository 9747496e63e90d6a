"""Pipelines: definitions and plans are pure; applying a plan to the database is a matter of its own.

A map of the modules. What each is about is said in its first line.

Described, in one of two spellings (no database):
    graph, fluent, growth: the spellings
    builder, draft, drafting, handles, blueprint: a definition under construction
    arguments, options, settings, reminding: what is given to a step, a pipeline, a wait
    loose, told, other_apps: what is refused on the way

A definition as a value (pure):
    definition, expressions, wait, callback, paths: what it is made of
    edges, wiring, dependants, picture: what comes after what
    validate, circles: what is refused of the whole
    difference, moving, current, binding: two definitions of one pipeline

What follows from what happened (pure):
    plan, cascade, changes, tokens, measure, inputs, ending

Applied, in the transaction in which it happened:
    apply, runs, steps, joins, stored, expand, budget, timers: a plan and its rows
    usual, presuming: the usual case, by a shorter way
    closing, results, callbacks, followers: the end of a run

A run begins, and its steps:
    trigger, labels, chains: runs
    hydrate, streams, children: steps, when they are claimed

A step waits:
    waiting, signals, answers, reminders, resuming

A run is steered, or stopped:
    steering, stopping, deadline, sweep, giving_up

A run once more, or by another definition:
    revive, revivals, lineage, rerun
    redefining, migrating

Looked after, between the transactions:
    chores, stuck, retention
    troubles, abandoning: runs that cannot be planned

In users' hands, and in the app's:
    pipeline, run, steerable, step, origin, reading
    declaring, engine, desk, host
"""
