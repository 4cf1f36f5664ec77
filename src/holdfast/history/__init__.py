"""What a job did, for people: kept in memory while it runs, and in a file that outlives it."""
