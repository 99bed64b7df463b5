"""Other engines' file layouts: onnxruntime-genai, LiteRT-LM, Triton and TensorFlow Serving."""
