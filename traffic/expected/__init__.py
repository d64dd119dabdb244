"""SQL of what the tables of `flights` must hold."""
