"""Two spellings of a pipeline, compiled to one definition. No database."""
