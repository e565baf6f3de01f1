"""Finds what is wrong between a person's agent programs and their mailbox, and says what to do about each.

Facts are gathered at the rim (`look`, `entries`, `processes`); what they mean is decided in one table of pure functions
(`findings`). Looking changes nothing, calls no tool and creates no identity; every look is bounded.
"""
