"""The REST API of jobs, compatible with Flink's, and the web UI.

    options     the settings ``rest.*``
    serving     a server in a thread of the driver, created when the first client connects
    registry    how the command line finds the servers of this user's jobs
    site        the jobs that a server shows: running ones, or those from files
    guard       access control: addresses, tokens, origins, limits
    api         the table of all endpoints, from which the server and its OpenAPI are generated
    shapes      the fields of the responses, with checkpoint_shapes, action_shapes and
                state_shapes; views, checkpoint_views and others fill them
    page/       the files of the web UI

The framework is imported by ``app`` only, with the first request: a job without clients only needs
a socket and a waiting thread.
"""
