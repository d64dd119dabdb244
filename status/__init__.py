"""State of the platform: what runs, how far it is, what is wrong."""
