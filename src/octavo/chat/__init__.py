"""Messages -> prompt text.

In come the messages of a chat as OpenAI's API has them, out comes the text that the model's own
template makes of them. Read `template.py` first. Templates are programs by strangers: `sandbox.py`
and its neighbours see to it that one can neither look around nor run away.
"""
