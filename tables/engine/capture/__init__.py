"""Change capture: how a database's table is declared, decoded, and made rows again."""
