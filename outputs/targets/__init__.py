"""What holds the copies: a class for each kind of output."""
