"""Real database servers for the tests, on free ports, in throwaway folders, gone when the tests are.

    postgres.py, mariadb.py   start one: `with Postgres(folder) as server: server.url("shop")`
    pgbouncer.py              a pool before one: `PgBouncer(folder, server_url, "transaction")`
    galera.py, patroni.py     start a cluster of them
    binaries.py, debian.py    where the programs come from
    versions.py               PostgreSQL of a certain version
    admin.py                  create and drop databases on any server, by its URL
    restore.py                empty one for the next test
    pristine.py               the data of a new server, made once and copied
    shared.py, keeper.py      one server of each kind for a whole session, also with several pytest workers

TEST_POSTGRES_URL and TEST_MARIADB_URL name servers to use instead,
with a user who can create databases.
"""
