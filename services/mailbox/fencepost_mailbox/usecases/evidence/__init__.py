"""Evidence of work: adding, listing, and recording what a check found."""
