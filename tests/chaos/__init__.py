"""Chaos: real workers on several simulated hosts, a real server, steady load, and a nemesis that breaks things.

python -m tests.chaos            DATABASE=postgres|mariadb|sqlite MINUTES=5 SEED=n
python -m tests.chaos failover   a PostgreSQL primary is killed, its synchronous standby promoted, again and again

terms.py                what everything runs with: hosts, settings, pace
plan.py                 what the producer does, by number, and what must come of it
shop.py, flows.py, yard.py, ledger.py     the application, its pipelines, its rows, and its ledger outside the database
produce.py, errands.py  the producer: enqueues, triggers, signals, and writes down what was accepted
proxy.py, hosts.py      the network and the machines, as far as they can be broken
world.py, faults.py, nemesis.py           who is there; what can be done to them; who does it, by a seed
facts.py, checks/       what was left behind, and whether it keeps the promises
recovery.py, report.py  what it cost
campaign.py, failover.py                  the two scenarios
"""
