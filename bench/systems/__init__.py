"""The systems under test. An adapter imports only its own library and bench.systems.base."""
