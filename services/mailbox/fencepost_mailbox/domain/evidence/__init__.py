"""Evidence of work: what may be reported."""
