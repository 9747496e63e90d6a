"""The one door to the database: engine, clock, dialects, transactions. Nothing above this package knows a driver.

A map of the modules. What each is about is said in its first line.

For everybody above:
    engine, url: a database
    blocks, transaction, template: a transaction, and the statements in it
    statements, among: statements over users' tables
    trouble: what can go wrong
    ears: what other processes say
    vitals: how the database is doing

What differs between databases, behind one protocol:
    dialect
    postgres, batches, fused, wire, open_transaction, patient
    portable: what the other two share
    mysql, text_cursor
    sqlite, gate, crossing

Connections:
    links, pooling: ours
    foreign, foreign_cursors, as_text: the caller's, on which we write
    lending, plain_text: ours, on which users write
"""
