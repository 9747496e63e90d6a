"""Arguments and results as JSON text, converted by the annotations of a function."""
