"""The OpenAI-compatible server under vLLM's name."""
