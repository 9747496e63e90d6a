"""The runtime: processes that claim work, run it and settle it. No SQL here.

    pump         moves work between the database and the executors, one transaction a turn
    executors    run handlers: on the event loop, in threads, in processes
    liveness     heartbeat, reaper, housekeeping: which processes are alive, what is due
    reconcilers  the same for rows of users' tables
    supervisor   forks worker processes and replaces the dead

`worker` puts one worker together, `shutdown` ends it, `service` is the loop that every thread of it is made of.
"""
