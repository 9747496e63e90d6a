"""A definition as a value: nodes, edges, expressions, and how two definitions differ. Pure."""
