"""Key/value caches and recurrent states: dense, rolling, paged and pooled."""
