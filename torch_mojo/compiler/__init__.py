"""torch.compile(backend="max")."""
