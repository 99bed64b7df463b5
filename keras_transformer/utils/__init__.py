"""Small utilities without a backend: serialization, JSON, atomic writing, shared types."""
