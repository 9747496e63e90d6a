"""Pure values: identities, states, policies and the JSON form of arguments and results."""
