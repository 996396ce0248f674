"""Benchmarks of torch_mojo: `python -m benchmarks` from the root of the repository."""
