"""Admission of callers to a service: certificates of the roles that `amalgam certs` makes, and tokens."""

import hmac
from pathlib import Path

import grpc

#: The name in a certificate that says that its owner may call solvers.
COORDINATOR = "urn:amalgam:role:coordinator"


def _private(path):
    """The bytes of a file that only its owner and group can read."""
    try:
        if path.stat().st_mode & 0o027:
            raise SystemExit(f"error: {path} can be read by others: chmod 600 it, and replace it")
        return path.read_bytes()
    except OSError as error:
        raise SystemExit(f"error: {path}: {error.strerror}") from error


class Gate:
    """Callers that a service accepts: callers with a coordinator's certificate, callers that know a token, or everybody.

    `tls` is a folder with ca.pem, solver.pem and solver.key, `token_file` a file with a token on one line.
    """

    def __init__(self, tls=None, token_file=None):
        self.credentials = self._token = None
        if tls is not None:
            folder = Path(tls)
            key = _private(folder / "solver.key")
            try:
                authority, chain = ((folder / name).read_bytes() for name in ("ca.pem", "solver.pem"))
            except OSError as error:
                raise SystemExit(f"error: {error.filename}: {error.strerror}") from error
            self.credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=True)
        if token_file is not None:
            token = _private(Path(token_file)).decode(errors="replace").strip()
            if not 16 <= len(token) <= 1024:
                raise SystemExit(f"error: {token_file} must hold one line of 16 to 1024 letters, digits or signs")
            self._token = f"Bearer {token}".encode()

    def check(self, context):
        """Ends a call that may not be made."""
        if self.credentials is not None:
            names = context.auth_context().get("x509_subject_alternative_name", ())
            if COORDINATOR.encode() not in names:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate is not a coordinator's")
        if self._token is not None:
            shown = dict(context.invocation_metadata()).get("authorization")
            if shown is None:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "this service asks for a token: give --token-file FILE")
            if not hmac.compare_digest(shown.encode(), self._token):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is another one than this service's")
