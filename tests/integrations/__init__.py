"""Web frameworks: real servers, stopped and reloaded, with a worker in them."""
