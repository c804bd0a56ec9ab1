"""Other APIs' chats <-> ours.

Each module converts one API's body to a ChatCompletionRequest, or an answer to that API's shape.
"""
