"""The commands of outputs."""
