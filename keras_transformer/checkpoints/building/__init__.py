"""What families share: sizes and settings from `config.json`, and how their tensors are named."""
