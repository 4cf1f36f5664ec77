"""Conversion of a job's history to the responses of the API."""
