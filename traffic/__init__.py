"""The sources that feed the demo domains, with their journal."""
