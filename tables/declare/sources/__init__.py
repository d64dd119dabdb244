"""Topics that no producer of records fills: a database, or webhooks."""
