"""`torch.device("mojo")`: Mojo's devices as a device of PyTorch. `register.register_device` registers it."""
