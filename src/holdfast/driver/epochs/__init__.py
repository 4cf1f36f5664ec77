"""The epochs of a running job, from trigger to commit, and the results that they deliver."""
