"""The settings of a configuration: the key, type and check of each."""
