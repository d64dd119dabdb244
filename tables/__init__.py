"""What exists and how its rows are computed."""
