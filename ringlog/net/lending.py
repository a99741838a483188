"""Sends large frames without a copy: ZeroMQ reads them from where they were made, and says when it is done.

pyzmq can do that too, but tells Python of each frame that left by a thread and a socket of its own, which cost more
than the copy, and outlive every client. Here a native function marks the memory, and the next send lets go of it.
"""

from __future__ import annotations

import ctypes
import errno
from typing import Any

import zmq

from ringlog.limits import KIB
from ringlog.native import _kernel

LENT_BYTES_MIN = 64 * KIB
"""Below it, a copy costs less."""
_MESSAGE_BYTES = 64
"""Of a zmq_msg_t, in every libzmq since 4.1."""


def _library() -> ctypes.CDLL | None:
    """The libzmq that pyzmq uses; None where it has another way to it, as on PyPy."""
    try:
        from zmq.backend.cython import _zmq

        library = ctypes.CDLL(_zmq.__file__, use_errno=True)
        pointer = ctypes.c_void_p
        library.zmq_msg_init_data.argtypes = [pointer, pointer, ctypes.c_size_t, pointer, pointer]
        library.zmq_msg_send.argtypes = [pointer, pointer, ctypes.c_int]
        library.zmq_msg_close.argtypes = [pointer]
    except (ImportError, OSError, AttributeError):
        return None
    return library


_libzmq = _library()


def send_lent(socket: zmq.Socket[Any], frame: bytes | bytearray | memoryview, flags: int) -> bool:
    """Send a frame that nobody changes from now on. False when it is small, or lending is not possible here: to be sent
    as any other. ZMQError as of `socket.send`."""
    if _libzmq is None or len(frame) < LENT_BYTES_MIN:
        return False
    address, nbytes, loan = _kernel.lend(frame)
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    if _libzmq.zmq_msg_init_data(message, address, nbytes, _kernel.GIVE_BACK, loan):
        number = ctypes.get_errno()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_kernel.GIVE_BACK)(address, loan)
        raise zmq.ZMQError(number)
    if _libzmq.zmq_msg_send(message, socket.underlying, flags) < 0:
        number = ctypes.get_errno()
        _libzmq.zmq_msg_close(message)  # which gives it back
        raise zmq.Again(number) if number == errno.EAGAIN else zmq.ZMQError(number)
    return True


take_back = _kernel.take_back
