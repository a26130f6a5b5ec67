"""A recorder between a coordinator and a participant: it keeps all messages on the wire."""

import argparse
import signal
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from .contract import METHODS
from .serve import OPTIONS, is_loopback

MAGIC = b"amalgam recording 1\n"


@dataclass
class Call:
    """A recorded call: messages as bytes; `code` is 0, or the code of the refusal."""

    name: str
    requests: list
    answers: list
    code: int = 0
    text: str = ""

    def messages(self):
        """The request's and the answer's messages, read."""
        method = METHODS[self.name]
        return [method.request.FromString(m) for m in self.requests], [method.response.FromString(m) for m in self.answers]


class Writer:
    """Writes calls to a file, each as soon as it has ended."""

    def __init__(self, path):
        self._file, self._lock = open(path, "wb"), threading.Lock()
        self._file.write(MAGIC)

    def write(self, call):
        """Appends a call."""
        parts = [call.name.encode(), struct.pack("<I", call.code), call.text.encode()]
        parts += [struct.pack("<I", len(call.requests)), *call.requests, *call.answers]
        record = b"".join(struct.pack("<I", len(part)) + part for part in parts)
        with self._lock:
            self._file.write(struct.pack("<Q", len(record)) + record)
            self._file.flush()


def read(path):
    """The calls of a recording, in the order in which they ended. A call that was cut off is left out."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path} is no recording")
        while len(head := file.read(8)) == 8:
            record = file.read(struct.unpack("<Q", head)[0])
            if len(record) < struct.unpack("<Q", head)[0]:
                return
            parts, at = [], 0
            while at < len(record):
                (size,) = struct.unpack_from("<I", record, at)
                parts.append(record[at + 4 : at + 4 + size])
                at += 4 + size
            name, code, text, count, *messages = parts
            (requests,) = struct.unpack("<I", count)
            yield Call(
                name.decode(), messages[:requests], messages[requests:], struct.unpack("<I", code)[0], text.decode()
            )


class _Relay(grpc.GenericRpcHandler):
    """Passes every call on, as bytes."""

    def __init__(self, channel, writer):
        self._channel, self._writer = channel, writer

    def service(self, handler_call_details):
        name = handler_call_details.method.rpartition("/")[2]
        method = METHODS.get(name)
        if method is None or method.path != handler_call_details.method:
            return None

        def serve(requests, context):
            requests = list(requests)
            call = Call(name, requests, [])
            ask = self._channel.stream_stream(method.path)
            try:
                for answer in ask(iter(requests)):
                    call.answers.append(answer)
                    yield answer
            except grpc.RpcError as error:
                call.code, call.text = error.code().value[0], error.details() or ""
                context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
                context.abort(error.code(), call.text)
            finally:
                self._writer.write(call)

        # Streams of one message are the same on the wire as single messages.
        return grpc.stream_stream_rpc_method_handler(serve)


def record(target, path, listen, insecure=False):
    """Starts a recorder before the service at `target` and returns the server and its address."""
    channel = grpc.insecure_channel(target, options=OPTIONS)
    return relay(_Relay(channel, Writer(path)), listen, insecure)


def relay(handler, listen, insecure):
    """Serves a handler and returns the server and its address."""
    host, _, _ = listen.rpartition(":")
    if not (listen.startswith("unix:") or insecure or is_loopback(host)):
        raise SystemExit(f"error: {listen} can be reached from other machines, unencrypted: say --insecure if that is meant")
    server = grpc.server(ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    bound = server.add_insecure_port(listen)
    server.start()
    return server, listen if listen.startswith("unix:") else f"{host}:{bound}"


def wait(server, address):
    """Serves until SIGTERM or SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"listening {address}", flush=True)
    ended.wait()
    server.stop(grace=10).wait()


def main():
    """The program `amalgam-record --listen ADDRESS --to ADDRESS FILE`."""
    parser = argparse.ArgumentParser(description="Keeps what crosses the wire between a coordinator and a participant")
    parser.add_argument("file", help="the recording")
    parser.add_argument("--to", required=True, metavar="ADDRESS", help="where the participant's service listens")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="where the coordinator finds the recorder")
    parser.add_argument("--insecure", action="store_true", help="listen beyond this machine without encryption")
    options = parser.parse_args()
    wait(*record(options.to, options.file, options.listen, options.insecure))


if __name__ == "__main__":
    main()
