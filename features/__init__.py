"""Capabilities, each in one folder that can be taken away, with its commands, its pages and its tests."""
