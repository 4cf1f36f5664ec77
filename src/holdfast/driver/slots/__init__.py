"""The slots of a resident attempt, as the driver sees them."""
