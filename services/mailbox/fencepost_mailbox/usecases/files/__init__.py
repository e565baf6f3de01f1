"""One call of file reservations a class: load, decide, commit."""
