"""Certificates and tokens: the callers that are accepted, and the words with which others are refused."""

import shutil
import subprocess

import pytest
from conftest import EXAMPLES, example

from amalgam_solver import serve


@pytest.fixture
def certificates(amalgam, tmp_path):
    """A folder of certificates of a new authority."""
    folder = tmp_path / "certs"
    subprocess.run([amalgam, "certs", folder, "--hosts", "node1"], check=True, capture_output=True)
    return folder


def conform(amalgam, address, *options):
    """The rules of the contract, tried by calls: whether all are kept, and what was said."""
    command = [amalgam, "conform", "--settings", EXAMPLES / "balls.toml", *options, address]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def test_a_coordinator_with_a_certificate_is_let_in_and_nobody_else(amalgam, certificates, tmp_path):
    server, address = serve(example("balls").Balls, "127.0.0.1:0", tls=certificates)
    try:
        kept, said = conform(amalgam, address, "--tls", certificates)
        assert kept, said
        kept, said = conform(amalgam, address)
        assert not kept and "TLS" in said, said
        # The certificate of an operator under the coordinator's name is refused by our own program; another one would
        # be refused by the service.
        others = tmp_path / "others"
        subprocess.run([amalgam, "certs", others, "--hosts", "node1"], check=True, capture_output=True)
        kept, said = conform(amalgam, address, "--tls", others)
        assert not kept and "authority" in said, said
    finally:
        server.stop(grace=None)


def test_another_role_is_refused_by_the_service(certificates):
    import grpc

    from amalgam_solver.contract import METHODS

    server, address = serve(example("balls").Balls, "127.0.0.1:0", tls=certificates)
    try:
        parts = ((certificates / name).read_bytes() for name in ("ca.pem", "operator.key", "operator.pem"))
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(*parts)) as channel:
            method = METHODS["Describe"]
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            with pytest.raises(grpc.RpcError) as refused:
                call(method.request(protocol_version=2))
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "not a coordinator's" in refused.value.details()
    finally:
        server.stop(grace=None)


def test_a_token_is_asked_for(amalgam, tmp_path):
    ours, others = tmp_path / "ours", tmp_path / "others"
    for file, word in ((ours, "0123456789abcdef0123"), (others, "0123456789abcdef0124")):
        file.write_text(word + "\n")
        file.chmod(0o600)
    server, address = serve(example("balls").Balls, "127.0.0.1:0", token_file=ours)
    try:
        kept, said = conform(amalgam, address, "--token-file", ours)
        assert kept, said
        kept, said = conform(amalgam, address)
        assert not kept and "asks for a token" in said, said
        kept, said = conform(amalgam, address, "--token-file", others)
        assert not kept and "another one than this service's" in said, said
    finally:
        server.stop(grace=None)


def test_files_that_others_can_read_are_refused(certificates, tmp_path):
    (certificates / "solver.key").chmod(0o644)
    with pytest.raises(SystemExit, match="can be read by others"):
        serve(example("balls").Balls, "127.0.0.1:0", tls=certificates)
    shutil.rmtree(certificates)
    with pytest.raises(SystemExit, match="No such file"):
        serve(example("balls").Balls, "127.0.0.1:0", tls=certificates)
    with pytest.raises(SystemExit, match="give certificates"):
        serve(example("balls").Balls, "0.0.0.0:0")
