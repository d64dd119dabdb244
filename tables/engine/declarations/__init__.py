"""Topics and tables as they are declared, and the functions that declarations use."""
