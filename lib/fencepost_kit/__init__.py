"""The runtime that Fencepost's servers share. Clients and the shim never import it."""
