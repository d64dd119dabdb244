"""One kind of task each."""
