"""What every HTTP server here shares: who may send requests, limits on time and size, JSON, and the end of a server."""
