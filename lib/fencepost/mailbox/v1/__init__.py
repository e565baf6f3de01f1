"""Generated stubs of fencepost.mailbox.v1; see protos/."""
