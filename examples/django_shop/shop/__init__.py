"""A shop: orders are placed in a view, and worked on in the background."""
