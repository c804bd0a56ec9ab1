"""Configuration: frozen, documented, resolved once.

One field is a name, a type, a default, a sentence and a range; the command line, the documents and
the checks are made from it. `engine.py` and `server.py` hold the parts, `cli_args.py` and
`keywords.py` fill them, `model_facts.py` describes a checkpoint in neutral words.
"""
