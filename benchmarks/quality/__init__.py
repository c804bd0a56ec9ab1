"""What types of stored numbers cost in quality: perplexity over a fixed text."""
