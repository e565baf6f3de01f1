"""Sessions: who exists in this home and who may act.

Promises: a name means one agent of its project; a credential speaks for exactly one holder; a generation is begun
once and never falls; every change of the directory has a revision, and a follower that holds a revision gets what
came after it or everything. Refuses: a name that could be taken for another; a caller whose role does not cover the
call; a repeated key with other content. Never: touches a record or a provider, stores a token (only its SHA-256), or
gives one to anything but a file of mode 0600.
"""
