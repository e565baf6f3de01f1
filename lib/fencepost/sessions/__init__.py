"""Generated stubs of fencepost.sessions; see protos/."""
