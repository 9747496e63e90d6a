"""What every process would do first, done once, before it is forked from ours: no connection, no thread.

The tables are described for every kind of database, and pydantic has looked for its plugins.
"""

from pydantic import TypeAdapter

from penstock.database.engine import Database
from penstock.schema import catalog
from penstock.settings import Settings

for url in ("sqlite://", "postgresql://host/database", "mysql://host/database"):
    catalog.describe(Database(Settings.load(database_url=url, environ={})))
TypeAdapter(int)
