"""What runs first inside a guest; imports nothing but the standard library."""
