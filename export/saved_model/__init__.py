"""The SavedModel format: conversion and quantization."""
