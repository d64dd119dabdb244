"""Commands that write projects and declarations, and look at what was written."""
