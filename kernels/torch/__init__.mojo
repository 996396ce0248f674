"""What connects Mojo kernels to libtorch: handles, output plans, devices, the router."""
