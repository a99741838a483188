"""The disk: one small interface, and its engines (io_uring, plain system calls)."""
