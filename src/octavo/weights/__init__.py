"""From a model name to named tensors.

`source.py` turns a name into a folder or file, `checkpoint.py` is the contract of what was found,
`safetensors_file.py`, `hf_folder.py`, `gguf_reader.py` and `gguf_checkpoint.py` fill it.
Nothing here knows a back end.
"""
