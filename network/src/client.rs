//! Connecting to a service.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use amalgam_proto::TransportLimits;
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::calls::Calls;
use crate::explain::explained;
use crate::stream::{Wire, widen};
use crate::token::Token;

/// Bytes on their way in a pipe within a process.
const PIPE_BYTES: usize = 1 << 20;

/// First byte of a TLS record that holds an alert, and of one that holds a handshake.
const TLS_RECORDS: [u8; 2] = [21, 22];

/// Credentials of a program that calls services: certificate and token, and whether it may leave its host
/// without them.
#[derive(Clone, Default)]
pub struct Access {
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) token: Option<Token>,
    pub(crate) insecure: bool,
}

impl Access {
    /// Access to services of this host that ask for a token.
    pub fn with_token(token: Token) -> Self {
        Self { token: Some(token), ..Self::default() }
    }

    /// True if connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tls, token, insecure } = self;
        write!(f, "Access {{ tls: {}, token: {}, insecure: {insecure} }}", tls.is_some(), token.is_some())
    }
}

/// Calls of the service that `whereabouts` finds, as `HOST:PORT`, now and each time that it is connected
/// anew.
///
/// # Errors
/// A failure of the network; and certificates, hosts or roles that are wrong, as [`is_refusal`] tells.
pub async fn dial(
    whereabouts: impl Fn() -> io::Result<String> + Send + Sync + 'static,
    access: &Access,
) -> io::Result<Calls> {
    // Calls carry the name of the host that is known now. A service ignores it, since it is the only one at
    // its address.
    let host = whereabouts().unwrap_or_else(|_| "localhost".into());
    let scheme = if access.has_tls() { "https" } else { "http" };
    let token = access.token.clone();
    let access = access.clone();
    let way = move || {
        let (found, access) = (whereabouts(), access.clone());
        async move { connect(&found?, &access).await }.boxed()
    };
    Calls::through(way, &format!("{scheme}://{host}"), token).await
}

/// Calls of the service at a Unix socket.
///
/// # Errors
/// A socket at which nothing listens.
pub async fn dial_unix(path: &Path, access: &Access) -> io::Result<Calls> {
    let path = path.to_path_buf();
    let way = move || {
        let path = path.clone();
        let connected = async move {
            let stream = UnixStream::connect(path).await?;
            widen(&stream)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        };
        connected.boxed()
    };
    Calls::through(way, "http://localhost", access.token.clone()).await
}

/// Calls of a service of this process. Each connection is one end of a pipe; the other goes to `pipes`.
///
/// # Errors
/// A service that has ended.
pub async fn dial_in_process(pipes: mpsc::Sender<DuplexStream>, access: &Access) -> io::Result<Calls> {
    let way = move || {
        let pipes = pipes.clone();
        let connected = async move {
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let sent = pipes.send(theirs).await;
            sent.map_err(|_| io::Error::other("the service in this process has ended"))?;
            Ok(Box::new(ours) as Box<dyn Wire>)
        };
        connected.boxed()
    };
    Calls::through(way, "http://localhost", access.token.clone()).await
}

/// True if a connection failed because one end does not trust the other. Waiting does not change this.
pub fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| {
        let error = error.downcast_ref::<io::Error>();
        error
            .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied && error.get_ref().is_some())
    })
}

/// True if a service that does not answer without TLS speaks TLS: it answers a handshake with a TLS record.
pub async fn speaks_tls(host_port: &str, patience: Duration) -> bool {
    let Some(hello) = crate::tls::hello() else { return false };
    let ask = async {
        let mut stream = TcpStream::connect(host_port).await?;
        stream.write_all(&hello).await?;
        stream.read_u8().await
    };
    matches!(tokio::time::timeout(patience, ask).await, Ok(Ok(first)) if TLS_RECORDS.contains(&first))
}

async fn connect(host_port: &str, access: &Access) -> io::Result<Box<dyn Wire>> {
    let found: Vec<_> = tokio::net::lookup_host(host_port).await?.collect();
    if access.tls.is_none() && !access.insecure && found.iter().any(|address| !address.ip().is_loopback()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{host_port} is another machine: give certificates with --tls DIR (amalgam certs makes them), or say --insecure on a network you trust"
            ),
        ));
    }
    let stream = TcpStream::connect(&found[..]).await?;
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(TransportLimits::KEEPALIVE)
        .with_interval(TransportLimits::KEEPALIVE_INTERVAL)
        .with_retries(TransportLimits::KEEPALIVE_TRIES);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let Some(tls) = &access.tls else { return Ok(Box::new(stream)) };
    let host = host_port.rsplit_once(':').map_or(host_port, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_string()).map_err(|_| {
        let reason = format!("no certificate can be for host {host:?}: use another name or the IP address");
        io::Error::new(io::ErrorKind::PermissionDenied, reason)
    })?;
    let stream = tls.connect(name, stream).await.map_err(explained)?;
    Ok(Box::new(Begun::wait_for(stream).await?))
}

/// A connection whose service has sent its first bytes: only then has it accepted our certificate.
struct Begun {
    stream: TlsStream<TcpStream>,
    first: Option<u8>,
}

impl Begun {
    async fn wait_for(mut stream: TlsStream<TcpStream>) -> io::Result<Self> {
        let first = stream.read_u8().await.map_err(explained)?;
        Ok(Self { stream, first: Some(first) })
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buf.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
