"""One call of supervised tasks a class: load, decide by the tables of the domain, commit."""
