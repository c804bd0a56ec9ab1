"""Models that are computed by the code of Hugging Face transformers, with our attention inside.

`checkpoint.py` understands a folder, with `probe.py`, which runs the model once without numbers to
see what it asks attention for; `attention.py` is what it gets instead; `weights.py` reads the
numbers; `runner.py` runs plans. transformers is imported here and nowhere else in Octavo.
"""
