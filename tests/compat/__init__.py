"""Other engines' names for what Octavo does."""
