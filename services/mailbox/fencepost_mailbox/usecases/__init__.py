"""What the mailbox does, one call a file: load, decide, commit.

The writing part of a call is an operation: a frozen value with `apply(tx)`, pure given the ids and the time that it
carries.
"""
