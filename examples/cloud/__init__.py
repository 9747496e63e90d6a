"""A small cloud: fleets of instances, volumes, and a provider that fails now and then."""
