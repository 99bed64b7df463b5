"""A bundle behind HTTP on Ray Serve: replicas that put requests together, and a gateway that loses none of them."""
