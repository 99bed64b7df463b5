"""Decoders for onnxruntime-genai."""
