"""The ONNX format: conversion, the optimiser, quantisation."""
