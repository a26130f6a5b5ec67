//! Listening at an address for accepted callers, and the connections that come.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use amalgam_proto::TransportLimits;
use anyhow::{Context as _, bail};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::server::TcpIncoming;

use crate::explain::explained;
use crate::lines::{LOOK_INTERVAL, Lines, Place, SILENCE_MAX};
use crate::stream::{Line, Wire, widen};
use crate::token::Token;

/// Time between two lines of the log about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Address at which a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket; a stale one of a dead process is replaced.
    Unix(PathBuf),
    /// `HOST:PORT`, a name or an IP address of this machine, or `*` for all of its addresses; port 0 takes a
    /// free one.
    Tcp(String),
}

impl std::str::FromStr for Listen {
    type Err = String;

    /// Reads `unix:PATH` or `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("write a path after unix:, for example unix:/tmp/cloth.sock".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let is_name = |host: &str| {
            host == "*"
                || !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        };
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        let named = text.rsplit_once(':').is_some_and(|(host, port)| is_name(host) && is_port(port));
        if named || text.parse::<SocketAddr>().is_ok() {
            return Ok(Self::Tcp(text.into()));
        }
        Err(format!(
            "{text:?} is no address to listen on: write unix:PATH or HOST:PORT, for example 127.0.0.1:7401, \
             node7:0 or [::1]:7401"
        ))
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Conditions under which a service accepts callers.
#[derive(Clone, Default)]
pub struct Gate {
    /// Certificates for TCP.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) token: Option<Token>,
    /// True if the service may listen beyond this machine without certificates.
    pub(crate) insecure: bool,
}

impl Gate {
    /// Checks that calls show the token, if the gate has one: for `tonic::service::InterceptorLayer`.
    pub fn checks(
        &self,
    ) -> impl Fn(tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> + Clone + use<> {
        let token = self.token.clone();
        move |request| {
            token.as_ref().map_or(Ok(()), |token| token.check(&request))?;
            Ok(request)
        }
    }
}

/// A service that listens. The file of a Unix socket is removed when this is dropped.
pub struct Listening {
    /// Address at which callers reach the service.
    pub address: String,
    /// Connections that have come; with TLS, after its handshake.
    pub incoming: ReceiverStream<io::Result<Line>>,
    /// All connections.
    pub lines: Lines,
    /// The file to remove.
    pub socket: Option<Socket>,
}

/// The file of a Unix socket, removed when this is dropped.
pub struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens; connections come from then on, on the runtime that this runs in.
///
/// # Errors
/// An address that cannot be listened at, or that is beyond the loopback interface without certificates and
/// without `--insecure`.
pub async fn listen(at: &Listen, gate: &Gate) -> anyhow::Result<Listening> {
    match at {
        Listen::Unix(path) => {
            remove_stale(path).await?;
            let listener = tokio::net::UnixListener::bind(path)
                .with_context(|| format!("cannot listen on unix:{}", path.display()))?;
            let incoming = UnixListenerStream::new(listener).map(|stream| {
                let stream = stream?;
                widen(&stream)?;
                Ok(stream)
            });
            let (incoming, lines) = through(incoming, None);
            let socket = Some(Socket(path.clone()));
            Ok(Listening { address: format!("unix:{}", path.display()), incoming, lines, socket })
        }
        Listen::Tcp(address) => {
            let (listener, address) = bind(address, gate.insecure || gate.tls.is_some()).await?;
            let incoming = TcpIncoming::from(listener)
                .with_nodelay(Some(true))
                .with_keepalive(Some(TransportLimits::KEEPALIVE))
                .with_keepalive_interval(Some(TransportLimits::KEEPALIVE_INTERVAL))
                .with_keepalive_retries(Some(TransportLimits::KEEPALIVE_TRIES));
            let (incoming, lines) = through(incoming, gate.tls.clone());
            Ok(Listening { address, incoming, lines, socket: None })
        }
    }
}

/// Lets connections through that find a place, after the handshake of TLS if there is `tls`. A task of the
/// runtime does so until the returned stream is dropped, and ends connections that are silent for too long.
pub fn through<IO>(
    incoming: impl Stream<Item = io::Result<IO>> + Send + Unpin + 'static,
    tls: Option<TlsAcceptor>,
) -> (ReceiverStream<io::Result<Line>>, Lines)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let lines = Lines::default();
    tokio::spawn(admit(incoming, tls, lines.clone(), sender));
    (ReceiverStream::new(receiver), lines)
}

async fn admit<IO>(
    mut incoming: impl Stream<Item = io::Result<IO>> + Send + Unpin + 'static,
    tls: Option<TlsAcceptor>,
    lines: Lines,
    sender: mpsc::Sender<io::Result<Line>>,
) where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (refused, mut looks) = (Refused::default(), tokio::time::interval(LOOK_INTERVAL));
    loop {
        let wire = tokio::select! {
            next = incoming.next() => match next {
                Some(Ok(wire)) => wire,
                Some(Err(error)) => {
                    // Most often too many files are open: other connections may close theirs.
                    refused.tell(&format!("a connection could not be taken: {error}"));
                    tokio::time::sleep(LOOK_INTERVAL).await;
                    continue;
                }
                None => break,
            },
            now = looks.tick() => {
                lines.look(now.into_std());
                continue;
            }
            () = sender.closed() => return,
        };
        let Some(place) = lines.admit() else {
            refused.tell(&format!("{} connections are open", TransportLimits::CONNECTIONS_MAX));
            continue;
        };
        tokio::spawn(hand_over(wire, place, tls.clone(), refused.clone(), sender.clone()));
    }
    // Connections that are open stay, with their limits on silence, until the last one has ended.
    while lines.count() > 0 && !sender.is_closed() {
        lines.look(looks.tick().await.into_std());
    }
}

async fn hand_over<IO>(
    wire: IO,
    place: Place,
    tls: Option<TlsAcceptor>,
    refused: Refused,
    sender: mpsc::Sender<io::Result<Line>>,
) where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let wire: Box<dyn Wire> = match tls {
        None => Box::new(wire),
        Some(tls) => match tokio::time::timeout(SILENCE_MAX, tls.accept(wire)).await {
            Ok(Ok(wire)) => Box::new(wire),
            Ok(Err(error)) => return refused.tell(&explained(error).to_string()),
            Err(_) => return refused.tell("it did not finish the handshake of TLS"),
        },
    };
    // Sending fails only if the service has ended.
    let _ = sender.send(Ok(Line::new(wire, place))).await;
}

/// Connections that were refused and not yet logged.
#[derive(Clone, Default)]
struct Refused(std::sync::Arc<std::sync::Mutex<Told>>);

#[derive(Default)]
struct Told {
    count: u64,
    last: Option<Instant>,
}

impl Refused {
    fn tell(&self, reason: &str) {
        let mut told = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = told.count(Instant::now()) {
            tracing::warn!("refused {count} connections, the last one because {reason}");
        }
    }
}

impl Told {
    /// Counts one more refusal. Returns the number of them to log, if a line is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Listens at `HOST:PORT`; the second value is the address by which others reach it.
pub(crate) async fn bind(
    address: &str,
    may_leave_host: bool,
) -> anyhow::Result<(tokio::net::TcpListener, String)> {
    let everywhere = address.strip_prefix("*:");
    // An IPv6 socket takes IPv4 connections, too. Without IPv6, the socket is an IPv4 one.
    let looked_up = match everywhere {
        Some(port) => {
            let has_ipv6 = tokio::net::TcpListener::bind("[::]:0").await.is_ok();
            format!("{}:{port}", if has_ipv6 { "[::]" } else { "0.0.0.0" })
        }
        None => address.to_string(),
    };
    let found = tokio::net::lookup_host(looked_up).await;
    let found: Vec<SocketAddr> =
        found.with_context(|| format!("cannot listen on {address}: no address has this name"))?.collect();
    if !may_leave_host && found.iter().any(|address| !address.ip().is_loopback()) {
        bail!(
            "{address} can be reached from other machines: give certificates with --tls DIR (amalgam certs makes them), \
             listen on 127.0.0.1, or say --insecure on a network you trust"
        );
    }
    let listener = tokio::net::TcpListener::bind(&found[..]).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let local = listener.local_addr()?;
    let announced = match address.rsplit_once(':') {
        Some(("*", _)) => format!("{}:{}", host_name(), local.port()),
        Some((name, _)) if address.parse::<SocketAddr>().is_err() => format!("{name}:{}", local.port()),
        _ => local.to_string(),
    };
    Ok((listener, announced))
}

/// The name of this machine.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string()
}

/// Removes the socket of a process that is gone; a live one stays, and listening fails.
async fn remove_stale(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        bail!("{} exists and is no socket: choose another path", path.display());
    }
    if tokio::net::UnixStream::connect(path).await.is_ok() {
        bail!("another service listens on unix:{}: stop it or choose another path", path.display());
    }
    std::fs::remove_file(path).with_context(|| format!("cannot replace the stale socket {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connections_are_told_of_now_and_then() {
        let (mut told, start) = (Told::default(), Instant::now());
        assert_eq!(told.count(start), Some(1));
        for _ in 0..1000 {
            assert_eq!(told.count(start + LOG_INTERVAL / 2), None);
        }
        assert_eq!(told.count(start + LOG_INTERVAL), Some(1001));
    }

    #[test]
    fn names_and_addresses_can_be_listened_at() {
        for text in
            ["127.0.0.1:0", "*:0", "[::1]:7401", "localhost:0", "node-7.cluster:7401", "unix:/tmp/x.sock"]
        {
            let listen: Listen = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(listen.to_string(), text);
        }
        for text in
            ["", "7401", ":7401", "host", "host:70000", "::1:7401", "http://host:7401", "a b:1", "unix:"]
        {
            let error = text.parse::<Listen>().expect_err(text);
            assert!(
                error.contains("write unix:PATH or HOST:PORT") || error.contains("write a path"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_port_that_was_free_is_announced() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for (address, name) in [("127.0.0.1:0", "127.0.0.1"), ("localhost:0", "localhost")] {
                let (listener, announced) = bind(address, false).await.expect("listens");
                let port = listener.local_addr().expect("an address").port();
                assert_eq!(announced, format!("{name}:{port}"));
                assert!(port > 0);
            }
            let (_, announced) = bind("*:0", true).await.expect("listens");
            assert!(announced.starts_with(&format!("{}:", host_name())), "{announced}");
            let error = bind("*:0", false).await.expect_err("is open to others").to_string();
            assert!(error.contains("can be reached from other machines"), "{error}");
            let error = bind("0.0.0.0:0", false).await.expect_err("is open to others").to_string();
            assert!(error.contains("--tls DIR") && error.contains("say --insecure"), "{error}");
            let error = bind("nobody.invalid:0", true).await.expect_err("has no address").to_string();
            assert!(error.contains("no address has this name"), "{error}");
        });
    }
}
