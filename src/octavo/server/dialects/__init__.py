"""Other APIs' chats <-> ours: each module converts one API's body to a ChatCompletionRequest, and the
parts of an answer to that API's shape.
"""
