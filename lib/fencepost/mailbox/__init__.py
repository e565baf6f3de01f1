"""Generated stubs of fencepost.mailbox; see protos/."""
