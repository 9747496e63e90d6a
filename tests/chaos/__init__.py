"""Chaos: real workers on several simulated hosts, a real server, steady load, and a nemesis that breaks things.

python -m tests.chaos            DATABASE=postgres|mariadb|sqlite MINUTES=5 SEED=n
python -m tests.chaos failover   a PostgreSQL primary is killed, its synchronous standby promoted, again and again
python -m tests.chaos patroni    three PostgreSQL servers under Patroni and etcd
python -m tests.chaos galera     three nodes of Galera, all written to

terms.py                  what everything runs with: hosts, settings, pace
plan.py                   what the producer does, by number, and what must come of it
shop.py, flows.py, yard.py, host.py             the application: tasks, pipelines, rows; all that a host runs
ledger.py                 what really happened, written outside the database
produce.py, errands.py    the producer: enqueues, triggers, signals, and writes down what was accepted
programs.py, proxy.py, hosts.py, world.py       processes, networks and machines, as far as they can be broken
faults.py, trouble.py, strike.py, nemesis.py    what can be done to them, and who does it, by a seed
facts.py, checks/         what was left behind, and whether it keeps the promises
recovery.py, report.py    what it cost
campaign.py, failover.py, standby.py, patroni.py, galera.py     the scenarios
"""
