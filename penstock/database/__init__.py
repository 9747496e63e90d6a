"""The one door to the database: engine, clock, dialects, transactions. Nothing above this package knows a driver."""
