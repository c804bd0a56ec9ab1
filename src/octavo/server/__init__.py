"""The HTTP server: OpenAI's API over an AsyncLLM.

`app.py` lists routes and middleware: read it first. A request goes through `auth.py` and
`limits.py` to a file in `routes/`; its body is decoded by `bodies.py` into a struct of `schemas/`,
checked, generated, and comes back through `chunks.py`. Every exception becomes an answer in
`errors.py`.
"""
