"""Schedules: rows that say when a task is to be enqueued or a pipeline triggered, again and again.

Any worker takes due rows in its housekeeping. In one transaction it inserts the job or the run, writes the tick under
(schedule, nominal time), and moves the row to its next time. There is no leader and no memory, and the only clock is
the database's.

`cron` reads expressions, `times` computes ticks and `decide` says what becomes of those that are due: all three are
pure. `definition` checks what a caller gives. `rows` has the statements. `fire` applies decisions, `declare` brings
what the code declares into rows, `acts` is what an operator does, and `schedule` is what users hold in their hands.
"""
