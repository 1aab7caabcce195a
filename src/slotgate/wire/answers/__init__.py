"""One answer out of the frames of a stream, for each shape; `wire.assemble` drives them."""
