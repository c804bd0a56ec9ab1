"""One file per group of endpoints; each exports its handlers, `app.py` lists the paths."""
