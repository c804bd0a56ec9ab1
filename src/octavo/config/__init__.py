"""Configuration: frozen, documented, resolved once.

One field is a name, a type, a default, a sentence and a range; the command line, the documents and
the checks are made from it. `engine.py` holds the parts, `model_facts.py` describes a checkpoint in
neutral words, `resolve.py` is the only place that fills a default which depends on something else.
"""
