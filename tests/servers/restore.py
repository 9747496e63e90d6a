"""Empties the database of a test for the next one, at half the price of dropping it and copying the template anew.

Tables that the test made are dropped, and rows are removed. Where anything else was changed, a table of ours, an
index, a function, a setting, a statistic for the planner, or where a connection is left, `restored` is false and the
database has to go: what is told here is compared with what was told about a fresh copy.
"""

import re
from typing import Any, TypeAlias

import psycopg
from pymysql.cursors import Cursor

Made: TypeAlias = tuple[tuple[Any, ...], ...]
"""All that is in a fresh copy but empty tables."""

# PostgreSQL: a change of a catalog's row makes a new version of it, with another transaction and place. Only in
# pg_class does emptying a table do so too. What is ours has an oid from here on.
OURS = 16384
VERSIONED = {
    "pg_attrdef": "adrelid",
    "pg_attribute": "attrelid",
    "pg_cast": "oid",
    "pg_collation": "oid",
    "pg_constraint": "oid",
    "pg_default_acl": "oid",
    "pg_depend": "objid",
    "pg_description": "objoid",
    "pg_enum": "oid",
    "pg_event_trigger": "oid",
    "pg_extension": "oid",
    "pg_foreign_server": "oid",
    "pg_index": "indexrelid",
    "pg_inherits": "inhrelid",
    "pg_largeobject_metadata": "oid",
    "pg_namespace": "oid",
    "pg_operator": "oid",
    "pg_policy": "oid",
    "pg_proc": "oid",
    "pg_publication": "oid",
    "pg_rewrite": "oid",
    "pg_statistic": "starelid",
    "pg_statistic_ext": "oid",
    "pg_trigger": "oid",
    "pg_type": "oid",
}
VERSIONS = " UNION ALL ".join(
    f"SELECT '{catalog}', count(*), sum(hashtext(concat(xmin, ctid))) FROM {catalog} WHERE {oid} >= {OURS}"
    for catalog, oid in VERSIONED.items()
)
RELATIONS = f"""
SELECT 'pg_class', count(*), sum(hashtext(concat_ws(' ', oid, relname, relnamespace, relowner, relam, reltablespace,
    relhasindex, relpersistence, relkind, relnatts, relchecks, relhasrules, relhastriggers, relrowsecurity,
    relreplident, reloptions, relacl)))
FROM pg_class WHERE oid >= {OURS}
"""
BESIDE = """
SELECT 'pg_database', count(*), sum(hashtext(concat_ws(' ', datdba, datistemplate, datallowconn, datconnlimit, datacl)))
FROM pg_database WHERE datname = current_database()
UNION ALL SELECT 'settings', count(*), 0 FROM pg_db_role_setting JOIN pg_database d ON setdatabase = d.oid
WHERE datname = current_database()
UNION ALL SELECT 'prepared', count(*), 0 FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL SELECT 'slots', count(*), 0 FROM pg_replication_slots WHERE database = current_database()
UNION ALL SELECT 'versions', count(*), sum(hashtext(v::text)) FROM penstock_schema_versions v
"""
TOLD = f"{VERSIONS} UNION ALL {RELATIONS} UNION ALL {BESIDE}"
TABLES = f"""
SELECT oid, format('%I.%I', relnamespace::regnamespace, relname) FROM pg_class WHERE relkind = 'r' AND oid >= {OURS}
ORDER BY oid
"""
# A table that has ever held a row has a page, also when the rows are gone or were never committed. Emptied by TRUNCATE
# it is as new: no page, no dead row, nothing known about its size.
USED = f"""
SELECT relname FROM pg_class t WHERE relkind = 'r' AND oid >= {OURS} AND relname <> 'penstock_schema_versions' AND (
    pg_relation_size(oid) > 0 OR EXISTS (
        SELECT FROM pg_depend JOIN pg_sequence ON seqrelid = objid
        WHERE refobjid = t.oid AND pg_sequence_last_value(seqrelid) IS NOT NULL))
"""


def made_on_postgres(connection: psycopg.Connection) -> Made:
    return (
        tuple(connection.execute(TABLES.encode()).fetchall()),
        *connection.execute(TOLD.encode()).fetchall(),
    )


def restored_on_postgres(connection: psycopg.Connection, made: Made) -> bool:
    if more := set(connection.execute(TABLES.encode())).difference(made[0]):
        connection.execute(f"DROP TABLE {', '.join(name for _, name in more)} CASCADE".encode())
    if made_on_postgres(connection) != made:
        return False
    if used := [name for (name,) in connection.execute(USED.encode())]:
        connection.execute(f"TRUNCATE {', '.join(used)} RESTART IDENTITY".encode())
    return True


# MariaDB: what would make each table anew, without the number that its next row gets.
NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")
BESIDE_TABLES = """
SELECT 'schema', concat_ws(' ', default_character_set_name, default_collation_name) FROM information_schema.schemata
WHERE schema_name = %(name)s
UNION ALL SELECT 'trigger', trigger_name FROM information_schema.triggers WHERE trigger_schema = %(name)s
UNION ALL SELECT 'routine', name FROM mysql.proc WHERE db = %(name)s
UNION ALL SELECT 'event', name FROM mysql.event WHERE db = %(name)s
"""


def made_on_mariadb(cursor: Cursor, name: str) -> Made:
    return _described(cursor, name)[0]


def restored_on_mariadb(cursor: Cursor, name: str, made: Made) -> bool:
    _drop_tables(cursor, name, keep={table for table, _ in made[1:]})
    found, numbered = _described(cursor, name)
    if found != made:
        return False
    tables = [table for table, _ in made[1:] if table != "penstock_schema_versions"]
    cursor.execute("SELECT " + ", ".join(f"EXISTS(SELECT 1 FROM {name}.{table})" for table in tables))
    filled = [table for table, has_rows in zip(tables, cursor.fetchone() or (), strict=True) if has_rows]
    for table in {*filled, *numbered}:
        cursor.execute(f"TRUNCATE TABLE {name}.{table}")
    return True


def _drop_tables(cursor: Cursor, name: str, keep: set[str]) -> None:
    cursor.execute(f"SHOW FULL TABLES FROM {name} WHERE table_type = 'BASE TABLE'")
    if more := [f"{name}.`{table}`" for table, _ in cursor.fetchall() if table not in keep]:
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute(f"DROP TABLE {', '.join(more)}")
        cursor.execute("SET foreign_key_checks = 1")


def _described(cursor: Cursor, name: str) -> tuple[Made, list[str]]:
    """Everything in that database but rows, and the tables that have given out a number."""
    cursor.execute(BESIDE_TABLES, {"name": name})
    beside = cursor.fetchall()
    cursor.execute(f"SELECT * FROM {name}.penstock_schema_versions ORDER BY 1")
    versions = cursor.fetchall()
    cursor.execute(f"SHOW TABLES FROM {name}")
    tables, numbered = [], []
    for (table,) in cursor.fetchall():
        cursor.execute(f"SHOW CREATE TABLE {name}.{table}")
        _, how = (cursor.fetchone() or ("", ""))[:2]
        plain, times = NEXT_NUMBER.subn("", how)
        tables.append((table, plain))
        numbered += [table] * bool(times)
    return ((*beside, *versions), *tables), numbered
