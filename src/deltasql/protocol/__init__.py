"""Delta's rules without I/O: values in, values or errors out."""
