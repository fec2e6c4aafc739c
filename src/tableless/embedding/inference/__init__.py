"""The network of a trained scheme for answering: batch norm folded in, buffers used again, bytes if wanted."""
