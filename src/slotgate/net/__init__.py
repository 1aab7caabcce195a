"""The HTTP/1.1 client of the data plane."""
