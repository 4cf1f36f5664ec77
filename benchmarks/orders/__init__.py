"""The order system of ``examples/orders`` on Holdfast and on PyFlink, from files to files.

Both read the same events, lines of JSON in one file per subtask that reads, which are made once for
each number of them. Both write all their outputs to files that appear with a checkpoint, and after
the run what is there is compared with the batch computation of the example.
"""
