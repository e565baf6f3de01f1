"""The command line: a client like any other.

Promises: one JSON document with `schema: 1` on standard output under --json, tables for people otherwise; errors on
standard error; the exit codes of `exits`. With an agent's identity in the environment it acts as that agent and nothing
more. Never: opens a database, sends a call twice, prints a control character of a message to a terminal.
"""
