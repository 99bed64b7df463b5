"""Grammars that generated texts obey: JSON schemas, regular expressions and Lark grammars."""
