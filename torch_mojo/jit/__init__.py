"""From Mojo source to a loaded library: toolchain, sources, cache, build. Knows no operator."""
