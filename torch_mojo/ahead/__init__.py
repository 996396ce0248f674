"""Libraries of operators that are built ahead of time: what to build, building it, putting it into a wheel."""
