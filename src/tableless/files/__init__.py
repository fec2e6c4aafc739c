"""What is written to disk: files that appear whole or not at all, tensors, and a scheme as a directory."""
