"""The rules of the log, without I/O: values in, values or errors out."""
