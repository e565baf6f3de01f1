"""What a supervised task is and how it changes. Frozen values, tables and pure functions.

`transitions.py` is the specification: which action, by whom, from which phase, under which conditions, leads where.
"""
