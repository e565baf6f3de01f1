"""Evidence of work in the store."""
