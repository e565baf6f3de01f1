"""What a mailbox decides.

Frozen values, transition tables and pure functions. No I/O, no clock, no log, no protobuf.
"""
