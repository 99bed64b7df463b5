"""Commands that write models, bundles and the files of engines."""
