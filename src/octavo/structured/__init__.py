"""Structured output: answers that fit a schema, an expression or a grammar, token by token.

`compiler.py` turns a `GrammarSpec` into constraints and refuses what would not be enforced; read it
first. `limits.py` bounds what a stranger may send, `schema.py` reads JSON schemas, `tags.py`
structural tags. The automaton itself is llguidance's (a library); nothing outside this package
names it.
"""
