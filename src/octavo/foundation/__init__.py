"""Things without domain meaning: logging, registries, the clock. Imports nothing of ours but `errors`."""
