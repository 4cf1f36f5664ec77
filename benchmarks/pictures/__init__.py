"""The results of the benchmarks as pictures, and the page of the documentation that has them."""
