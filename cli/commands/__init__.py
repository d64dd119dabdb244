"""The commands of `twofold`."""
