"""What is broken, one file for each kind of fault."""
