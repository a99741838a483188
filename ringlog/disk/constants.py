"""Numbers of the Linux interface that the liburing package does not export, under the kernel's names."""

from __future__ import annotations

# io_uring_setup(2)
IORING_SETUP_CLAMP = 1 << 4
IORING_SETUP_SUBMIT_ALL = 1 << 7
IORING_SETUP_TASKRUN_FLAG = 1 << 9
IORING_SETUP_SINGLE_ISSUER = 1 << 12
IORING_SETUP_DEFER_TASKRUN = 1 << 13

# io_uring_enter(2)
IORING_FSYNC_DATASYNC = 1 << 0
IORING_CQE_F_MORE = 1 << 1

# pwritev2(2)
RWF_DSYNC = 1 << 1

LIBURING_IOVEC_PIECES_MAX = 60
"""What `liburing.iovec` takes. Its authors meant the limit of the system (1024 on Linux) and wrote the
number by which sysconf(3) is asked for it."""
