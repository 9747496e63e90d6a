"""The only access to the database: connections, transactions, dialects. Nothing above this package knows a driver.

`database` opens transactions and repeats them after passing errors; `transaction` runs statements, which are written
with the mark-up of `templates`; `dialect` is the protocol of everything that differs between databases, with `sqlite`,
`mysql` and `postgres/` behind it. `user/` deals with connections that the caller brings. `listeners` hear wake-ups,
`error_advice` classifies errors, `diagnostics` measures what makes a queue slow.
"""
