"""The server side: application, streaming data plane, refusals."""
