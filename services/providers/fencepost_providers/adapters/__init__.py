"""One package for each agent program, behind one contract: see `fencepost_providers.adapters.base`."""
