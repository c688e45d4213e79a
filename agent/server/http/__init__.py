"""What all routes share: connections, bodies, keys, errors, options."""
