"""Tools and agents of other contracts and frameworks, one module each: import the one you need."""
