"""One module for each engine. They run in the engine's own environment, where Octavo is not."""
