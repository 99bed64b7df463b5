"""The TFLite (LiteRT) format: conversion, fusions, quantisation, inspection."""
