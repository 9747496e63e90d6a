"""A table of the user's own, in the same database, for what handlers write there."""

from sqlalchemy import text

from penstock import Penstock

INSERT = text("INSERT INTO receipts (note) VALUES (:note)")


def with_receipts(app: Penstock) -> Penstock:
    app.prepare()
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE receipts (note VARCHAR(50))"))
    return app


def receipts(app: Penstock) -> list[str]:
    with app.database.engine.connect() as connection:
        return [row[0] for row in connection.execute(text("SELECT note FROM receipts"))]
