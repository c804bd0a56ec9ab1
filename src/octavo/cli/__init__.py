"""The command line. `main.py` maps a word to a module; each command is one file with
`run(arguments)`.

Nothing heavy is imported before a command needs it: `octavo --help` must be instant.
"""
