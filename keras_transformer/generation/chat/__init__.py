"""Chat: templates, and conversations that keep their cache."""
