"""Other engines' names for what Octavo does. Imported only when a script asks."""
