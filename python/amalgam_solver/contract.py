"""The messages and calls of `amalgam.solver.v1`, made from the compiled contract.

The file `solver.descriptors` is the compiled solver.proto; a test of the repository compares the two. Messages are made
from it when this module is loaded, so that no generated code has to fit the installed version of protobuf.
"""

from dataclasses import dataclass
from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "amalgam.solver.v1"
SERVICE = PACKAGE + ".Solver"

#: The version of the contract that this package speaks.
PROTOCOL_VERSION = 2

_pool = descriptor_pool.DescriptorPool()
_files = resources.files(__package__).joinpath("solver.descriptors").read_bytes()
for _file in descriptor_pb2.FileDescriptorSet.FromString(_files).file:
    _pool.Add(_file)


def message(name):
    """The class of a message, for example `message("CommitRequest")`."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


@dataclass(frozen=True)
class Method:
    """A call: its messages, and whether they come as streams."""

    name: str
    request: type
    response: type
    request_streams: bool
    response_streams: bool

    @property
    def path(self):
        """The call's path in HTTP/2."""
        return f"/{SERVICE}/{self.name}"


def _method(descriptor):
    classes = [message_factory.GetMessageClass(kind) for kind in (descriptor.input_type, descriptor.output_type)]
    return Method(descriptor.name, *classes, descriptor.client_streaming, descriptor.server_streaming)


#: All calls by name.
METHODS = {method.name: _method(method) for method in _pool.FindServiceByName(SERVICE).methods}
