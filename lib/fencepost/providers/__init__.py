"""Generated stubs of fencepost.providers; see protos/."""
