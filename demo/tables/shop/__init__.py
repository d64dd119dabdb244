"""A shop on the net: what is ordered, how it is paid."""
