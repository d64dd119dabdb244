"""The process that moves outputs on, and what is known of each."""
