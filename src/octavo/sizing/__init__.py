"""What a model takes and whom it serves on a device, told before anything is loaded.

source     a model's name -> its shape: parameters by kind, KV entries by layer
devices    memory of GPUs by name
capacity   both of them -> weights, KV per token, tokens and users that fit
"""
