"""What clients may send. Structs only; `sampling.py` maps HTTP names to SamplingParams."""
