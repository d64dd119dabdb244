"""Parts of the platform that a snapshot looks at, each by itself."""
