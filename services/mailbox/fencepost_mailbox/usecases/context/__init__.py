"""One call of shared context and project memory a class: load, decide, commit."""
