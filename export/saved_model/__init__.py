"""The SavedModel format: conversion and quantisation."""
