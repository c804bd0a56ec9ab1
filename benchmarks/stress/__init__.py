"""Repeatable attempts to break a real server: clients that vanish, kills, damaged files."""
