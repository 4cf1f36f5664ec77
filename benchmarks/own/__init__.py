"""The work on Holdfast, and what is measured on Holdfast alone."""
