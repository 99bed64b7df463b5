"""OpenVINO IR: written from ONNX files by OpenVINO's converter, and run by OpenVINO on the CPU."""
