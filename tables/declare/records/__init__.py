"""The parts of a topic's declaration that concern records before they are in the log."""
