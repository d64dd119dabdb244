"""Sources of records for the demo domains, with a journal of the broker's acknowledgements."""
