"""Sources and sinks, each in its own module, imported from there."""
