"""Models with a recurrent state."""
