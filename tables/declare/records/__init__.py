"""What a topic's declaration says of its records before they are in the log."""
