"""Generated stubs of fencepost.common; see protos/."""
