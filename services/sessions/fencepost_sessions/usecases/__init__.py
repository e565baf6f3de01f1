"""One call a file: load, decide, commit. The decisions are the domain's; the order of steps is told here."""
