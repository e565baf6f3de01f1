"""Git repositories of people and agents, touched as little as can be."""
