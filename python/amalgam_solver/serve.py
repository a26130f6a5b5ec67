"""Serving a participant over gRPC: `main` is a program's whole main."""

import argparse
import ipaddress
import os
import signal
import socket
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import grpc

from .columns import MESSAGE_BYTES_MAX, Broken
from .contract import METHODS
from .participant import SolverError
from .session import Refused, Session
from .trust import Gate

#: Calls at once: a call that never ends its stream holds one of them.
CALLS_MAX = 16

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
    # The coordinator answers pings only while it waits for an answer.
    ("grpc.http2.bdp_probe", 0),
)


class _Service(grpc.GenericRpcHandler):
    """One participant, one call at a time."""

    def __init__(self, program, gate):
        self._session = Session(program)
        self._gate = gate
        self._lock = threading.Lock()
        self._handlers = {method.path: self._handler(method) for method in METHODS.values()}

    def service(self, handler_call_details):
        return self._handlers.get(handler_call_details.method)

    def _handler(self, method):
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[method.request_streams, method.response_streams]
        answer = self._streamed if method.response_streams else self._single

        def serve(request, context):
            return answer(method, request, context)

        return make(serve, method.request.FromString, method.response.SerializeToString)

    def _single(self, method, request, context):
        return self._answer(method, request, context)

    def _streamed(self, method, request, context):
        yield from self._answer(method, request, context)

    def _answer(self, method, request, context):
        """The answer to a call: a message, or all messages of a stream, made before the next call is taken."""
        self._gate.check(context)
        call = getattr(self._session, method.name.lower())
        try:
            # Whoever is slow to send must not keep others waiting.
            arguments = self._session.read(method.name, request) if method.request_streams else (request,)
            with self._lock:
                answer = call(*arguments)
                return list(answer) if method.response_streams else answer
        except Broken as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except SolverError as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))
        except Refused as error:
            if error.faults:
                details = _details(error)
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode[error.code], error.text)
        except Exception as error:
            if context.code() is None and not isinstance(error, grpc.RpcError):
                traceback.print_exc()
                context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
            raise


def _field(number, data):
    """A field of a protobuf message that has a length."""
    data = data.encode() if isinstance(data, str) else data
    length, head = len(data), bytearray([number << 3 | 2])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(head) + bytes([length]) + data


def _details(error):
    """google.rpc.Status with a google.rpc.BadRequest: a field violation for each fault."""
    violations = b"".join(_field(1, _field(1, key) + _field(2, text)) for key, text in error.faults)
    packed = _field(1, "type.googleapis.com/google.rpc.BadRequest") + _field(2, violations)
    code = grpc.StatusCode[error.code].value[0]
    return bytes([1 << 3, code]) + _field(2, error.text) + _field(3, packed)


def serve(program, listen, insecure=False, tls=None, token_file=None):
    """Starts serving and returns the server and the address, with the port that it got.

    `program` is a class that derives from `Participant`, `listen` is `unix:PATH` or `HOST:PORT`. `tls` is a folder of
    certificates, without which nobody beyond this machine is served unless `insecure` says so; `token_file` holds a token
    that callers must know.
    """
    gate = Gate(tls, token_file)
    server = grpc.server(ThreadPoolExecutor(CALLS_MAX), options=OPTIONS)
    server.add_generic_rpc_handlers((_Service(program, gate),))
    if listen.startswith("unix:"):
        bound, address = server.add_insecure_port(listen), listen
    else:
        host, _, port = listen.rpartition(":")
        if gate.credentials is not None:
            bound = server.add_secure_port(listen, gate.credentials)
        elif insecure or is_loopback(host):
            bound = server.add_insecure_port(listen)
        else:
            raise SystemExit(f"error: {listen} can be reached from other machines: give certificates with --tls DIR, or --insecure")
        address = f"{host}:{bound}"
    if not bound:
        raise SystemExit(f"error: cannot listen on {listen}")
    server.start()
    return server, address


def is_loopback(host):
    """True if a host name or address is this machine's own."""
    found = socket.getaddrinfo(host.strip("[]"), None)
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


def main(program):
    """Reads the command line and serves until SIGTERM or SIGINT. Prints `listening ADDRESS`."""
    parser = argparse.ArgumentParser(description=f"The solver {program.name} as a service")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:PATH or HOST:PORT, port 0 for any free one")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input does")
    parser.add_argument("--insecure", action="store_true", help="listen beyond this machine without encryption")
    parser.add_argument("--tls", metavar="DIR", help="certificates, as `amalgam certs DIR` makes them: callers must show a coordinator's")
    parser.add_argument("--token-file", metavar="FILE", help="a file with a token that callers must know")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server, address = serve(program, options.listen, options.insecure, options.tls, options.token_file)
    print(f"listening {address}", flush=True)
    if options.exit_with_stdin:

        def wait_for_stdin():
            while os.read(sys.stdin.fileno(), 1024):
                pass
            ended.set()

        threading.Thread(target=wait_for_stdin, daemon=True).start()
    ended.wait()
    server.stop(grace=10).wait()
