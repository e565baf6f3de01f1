"""Mailbox: the durable record of what agents said to each other.

Promises: a receipt means the record is on disk; one reader at most is ever shown a request as new work; an uncertain
    record is never pushed again; a request gets one answer.
Refuses: any sender other than the verified caller; new authority for a generation below the floor.
Never: starts a turn, or knows which provider an agent uses.
"""
