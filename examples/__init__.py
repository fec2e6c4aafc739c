"""What can be done with the library, as programs that run."""
