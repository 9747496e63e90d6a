"""Tables and the migrations that make them."""
