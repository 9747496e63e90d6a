"""What runs: the pump and its executors, heartbeat, housekeeping, supervisor. No SQL here.

A map of the modules. What each is about is said in its first line.

A worker:
    worker, options, host: all of it, put together
    serve, lasting, signals, departure: its process, from start to stop
    identity, dwelling: who it is, and where it lives
    service, hop: what its loops and threads are made of

Work comes in, is done, and is settled:
    pump, waker, rest: when to ask the database
    source, job_source, lanes, limiter: what to ask for
    crew, executors, work: who does it
    blame: what the database refuses to settle

The same for users' rows:
    rows, runner, row_pump, row_crew, row_services, undo

Beside the work:
    heartbeat, contact: signs of life, and who may judge by them
    housekeeping, limit_keeper, neighbours: what is due, left over or left behind
    relay: what other processes say

Many processes:
    supervisor, nursery, keeper
"""
