"""The records that all parts of the export speak of: specs, manifests and reports. Importing them needs numpy alone."""
