"""A plan applied to rows, in the transaction that settled the step."""
