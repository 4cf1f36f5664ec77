"""The kinds of type information: see `holdfast.common.typeinfo`."""
