"""A player: stands in for a recorded participant, and reports where a run differs from the recorded one."""

import argparse
import threading

import grpc

from .contract import METHODS
from .record import read, relay, wait


def _bare(call, requests):
    """The messages of a request without the name of the run and the files that it offers, which differ in each run."""
    messages = [METHODS[call].request.FromString(request) for request in requests]
    for message in messages:
        names = {field.name for field in message.DESCRIPTOR.fields}
        holder = message if "run_id" in names else message.header if "header" in names else message
        if "run_id" in names:
            message.run_id, message.epoch = "", 0
        elif "context" in {field.name for field in holder.DESCRIPTOR.fields} and holder.HasField("context"):
            holder.context.run_id, holder.context.epoch = "", 0
        if "files" in {field.name for field in holder.DESCRIPTOR.fields}:
            holder.ClearField("files")
    return messages


def difference(call, recorded, requests):
    """The difference between a request and the recorded one, or None."""
    old, new = _bare(call, recorded), _bare(call, requests)
    if old == new:
        return None
    heads = [[m.header for m in side if hasattr(m, "header") and m.HasField("header")] or side for side in (old, new)]
    if heads[0] != heads[1]:
        return f"header {' '.join(str(heads[1][0]).split())[:300]} in place of {' '.join(str(heads[0][0]).split())[:300]}"
    columns = [{}, {}]
    for side, messages in zip(columns, (old, new), strict=True):
        for column in (column for message in messages for column in message.columns):
            side[column.name] = side.get(column.name, b"") + column.data
    for name in sorted(columns[0].keys() | columns[1].keys()):
        a, b = (side.get(name, b"") for side in columns)
        if a != b:
            at = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"column {name} differs from byte {at} ({len(b)} bytes in place of {len(a)})"
    return None


class _Player(grpc.GenericRpcHandler):
    def __init__(self, path):
        self._calls = [call for call in read(path) if call.code == 0]
        self._next, self._last, self._lock = 0, None, threading.Lock()

    def service(self, handler_call_details):
        name = handler_call_details.method.rpartition("/")[2]
        if name not in METHODS or METHODS[name].path != handler_call_details.method:
            return None

        def serve(requests, context):
            requests = list(requests)
            with self._lock:
                call, reason = self._find(name, requests)
            if call is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
            yield from call.answers

        return grpc.stream_stream_rpc_method_handler(serve)

    def _find(self, name, requests):
        """The recorded call that matches this one, or the reason why none does."""
        if name == "Describe":
            return next((call for call in self._calls if call.name == name), None), "no Describe was recorded"
        if name == "Initialize":
            self._next, self._last = 0, None
        if self._last and self._last.name == name and difference(name, self._last.requests, requests) is None:
            return self._last, ""
        while self._next < len(self._calls) and self._calls[self._next].name == "Describe":
            self._next += 1
        if self._next == len(self._calls):
            return None, f"{name} comes after the last call that was recorded"
        call = self._calls[self._next]
        if call.name != name:
            return None, f"{name} is call {self._next}, but {call.name} was recorded"
        if reason := difference(name, call.requests, requests):
            return None, f"{name}, call {self._next}, is not the one that was recorded: {reason}"
        self._next, self._last = self._next + 1, call
        return call, ""


def play(path, listen, insecure=False):
    """Starts a player of a recording and returns the server and its address."""
    return relay(_Player(path), listen, insecure)


def main():
    """The program `amalgam-play --listen ADDRESS FILE`."""
    parser = argparse.ArgumentParser(description="Stands in for a participant that was recorded")
    parser.add_argument("file", help="the recording")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:PATH or HOST:PORT")
    parser.add_argument("--insecure", action="store_true", help="listen beyond this machine without encryption")
    options = parser.parse_args()
    wait(*play(options.file, options.listen, options.insecure))


if __name__ == "__main__":
    main()
