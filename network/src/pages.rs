//! Listening for browsers.

use std::io;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::listen::bind;
use crate::stream::Wire;

/// Connections of browsers, encrypted or not.
#[derive(Clone, Default)]
pub struct Pages {
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) insecure: bool,
}

impl Pages {
    /// Pages without encryption, which anyone who reaches them may read.
    pub fn open() -> Self {
        Self { tls: None, insecure: true }
    }

    /// Listens at `HOST:PORT`. The second value is the start of the pages' address, `https://HOST:PORT`.
    ///
    /// # Errors
    /// An address that is taken, or beyond this machine though neither encryption nor `--insecure` was asked
    /// for.
    pub async fn listen(&self, address: &str) -> anyhow::Result<(TcpListener, String)> {
        let (listener, announced) = bind(address, self.insecure || self.tls.is_some()).await?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok((listener, format!("{scheme}://{announced}")))
    }

    /// A connection, after the handshake of TLS if there is any.
    ///
    /// # Errors
    /// A handshake that fails.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Box<dyn Wire>> {
        Ok(match &self.tls {
            Some(tls) => Box::new(tls.accept(stream).await?),
            None => Box::new(stream),
        })
    }
}
