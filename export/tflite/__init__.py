"""The TFLite (LiteRT) format: conversion, fusions, quantization, inspection."""
