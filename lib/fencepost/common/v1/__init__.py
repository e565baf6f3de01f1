"""Generated stubs of fencepost.common.v1; see protos/."""
