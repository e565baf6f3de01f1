"""Generated stubs of fencepost.providers.v1; see protos/."""
