"""From a model name to named tensors.

`source.py` turns a name into a folder or file, `checkpoint.py` is the contract of what was found.
GGUF: `gguf_reader.py` (format), `gguf_facts.py` (meaning), `gguf_special.py` (what single
architectures mean), `gguf_names.py`, `gguf_checkpoint.py`. Hugging Face folders:
`safetensors_file.py`, `hf_config.py` (meaning), `hf_families.py` and `hf_special.py` (single
architectures), `hf_names.py`, `hf_folder.py`. Both: `arrangement.py` takes fused tensors apart.
Fetching: `download.py`. Files are not trusted: every claim is checked against the real size of the
file before it is used. Nothing here knows a back end.
"""
