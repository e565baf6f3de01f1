"""Threads of records and the search for words in them: pure rules."""
