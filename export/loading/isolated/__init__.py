"""Models of bundles that are not trusted, in a process of their own."""
