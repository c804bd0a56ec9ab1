"""What vLLM's own HTTP tests import, answered by Octavo, so that they run against its server.

`names.py` makes `import vllm` work, `remote_server.py` takes the place of their `tests/utils.py`,
`plugin.py` is the pytest plugin that sets both up. Nothing of vLLM is kept here.
"""
