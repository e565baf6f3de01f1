"""The guard: a git hook that refuses a commit which touches files that another agent holds.

`script.py` decides what a hook's text becomes, `hooks.py` puts it there and takes it out, `changes.py` asks git which
files a commit or a push touches.
"""
