"""The Open Inference Protocol (version 2 of KServe's, spoken by Triton too) over HTTP, with binary tensors, and over gRPC.

Reference: https://github.com/kserve/open-inference-protocol and Triton's extensions for binary tensor data.
"""
