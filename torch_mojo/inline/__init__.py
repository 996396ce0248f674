"""Inline kernels: what is declared, the Mojo text for it, the operator it becomes."""
