"""The schemas of saved state, and conversion of values to bytes and to plain values."""
