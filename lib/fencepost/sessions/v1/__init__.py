"""Generated stubs of fencepost.sessions.v1; see protos/."""
