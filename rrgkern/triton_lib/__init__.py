"""Device functions used by the Triton kernels of two rooms or more."""
