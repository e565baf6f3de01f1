"""What shared context and project memory are: frozen values, limits, pure functions."""
