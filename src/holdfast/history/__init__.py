"""The history of a job, for users: in memory while it runs, and in a file that outlives it."""
