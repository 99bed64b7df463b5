"""Tokenizers as graphs of built-in operators: bytes of UTF-8 to token ids and back, in TFLite and ONNX files."""
