# The modules of the compiler, of which one function is called.
