"""Threads, acknowledgement by id and the search of records."""
