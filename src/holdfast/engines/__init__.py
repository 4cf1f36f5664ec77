"""Entries: ``spark`` and ``local`` start jobs, and are found by their names.

Here the layers come together: a job, the engine that runs it, and the server that shows it. No
layer below imports one of these modules; see `holdfast.datastream.engines.Launcher`.
"""
