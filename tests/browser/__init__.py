"""The dashboard in a real browser, on one application that is filled once."""
