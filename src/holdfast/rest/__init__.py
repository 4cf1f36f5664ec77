"""The HTTP API of jobs, in Flink's words, and the web page.

    options     what the settings ``rest.*`` say
    serving     a server in a thread of the driver, which is made when the first client comes
    registry    how the command line finds the servers of this user's jobs
    site        the jobs that a server shows: running ones, or those of files
    guard       who may do what: addresses, tokens, origins, limits
    api         the table of all endpoints, from which the server and its OpenAPI are made
    shapes      what is answered, field by field, with checkpoint_shapes, action_shapes and
                state_shapes; views, checkpoint_views and others fill them
    page/       the web page, as it is sent

The framework is loaded by ``app`` alone, and that by the first request: a job that nobody looks at
pays for a socket and a thread that waits.
"""
