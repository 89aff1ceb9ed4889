"""`python -m benchmarks.peers`: the operator beside every public way to do the same or a similar job."""
