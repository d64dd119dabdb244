"""Values of persons: encrypted where they are kept, and gone once a person is forgotten."""
