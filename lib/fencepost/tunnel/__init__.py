"""A home's edge socket on another machine, over OpenSSH, for the agents that a person names.

`destination`: where to, and the words of ssh. `keeper`: what runs over there while it stands; it is sent as text.
`link`: one connection. `standing`: connections one after the other, until the person ends it.
"""
