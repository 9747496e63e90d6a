"""database/dialect: no column of ours needs quotes on one database and is written without them."""

import re

from sqlalchemy.dialects.mysql.reserved_words import RESERVED_WORDS_MARIADB, RESERVED_WORDS_MYSQL
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS as RESERVED_WORDS_POSTGRES
from sqlalchemy.dialects.sqlite.base import SQLiteIdentifierPreparer

from penstock.database.dialect import RESERVED
from penstock.schema.catalog import COLUMN_TYPES
from tests.architecture.source import modules

WORDS = (
    RESERVED_WORDS_MYSQL
    | RESERVED_WORDS_MARIADB
    | RESERVED_WORDS_POSTGRES
    | SQLiteIdentifierPreparer.reserved_words
)
NOT_ANY_MORE = {"role"}
"""Words of early versions of MySQL 8.0 alone."""


def test_columns_that_need_quotes_are_known() -> None:
    columns = {column for columns in COLUMN_TYPES.values() for column in columns}
    assert columns & WORDS - NOT_ANY_MORE == RESERVED


def test_statements_quote_them() -> None:
    bare = re.compile(rf"(?<![:.{{}}\w])({'|'.join(RESERVED)})(?![\w}}])")
    tables = {table for table, columns in COLUMN_TYPES.items() if columns.keys() & RESERVED}
    statements = [
        (f"{module}:{line}", text)
        for module in modules()
        for line, text in module.strings
        if any(f"{{{table}}}" in text for table in tables)
    ]
    assert len(statements) > 2
    assert [where for where, text in statements if bare.search(text)] == []
