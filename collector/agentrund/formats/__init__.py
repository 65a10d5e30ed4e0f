"""What every byte of the run folder looks like, both ways. Pure."""
