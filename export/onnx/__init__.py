"""The ONNX format: conversion, the optimizer, quantization."""
