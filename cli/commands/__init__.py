"""The commands of `./twofold`."""
