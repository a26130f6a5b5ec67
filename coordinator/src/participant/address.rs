//! Address of a participant's service, and connections to it.

pub(crate) mod registry;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use amalgam_network::{Access, Calls, dial_in_process, dial_unix, innermost};
use amalgam_proto::{Incoming, Outgoing, PROTOCOL_VERSION, call, v1};
use http::Uri;

use registry::Registry;

/// Address of a participant's service.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
    /// The address that the service of this participant registers.
    Registered(Registry, String),
    /// A service in this process: it takes pipes from this queue.
    InProcess(tokio::sync::mpsc::Sender<tokio::io::DuplexStream>),
}

impl Address {
    /// Reads `unix:PATH`, `http://HOST:PORT` or `HOST:PORT`.
    ///
    /// # Errors
    /// A sentence that says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("write a path after unix:".into())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let rest = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        if rest.matches(':').count() > 1 && !rest.starts_with('[') {
            return Err(format!("{text:?}: write an IPv6 address in brackets, for example [::1]:7401"));
        }
        let port =
            rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) if format!("http://{rest}").parse::<Uri>().is_ok() => Ok(Self::Tcp(rest.to_string())),
            _ => Err(format!(
                "{text:?} is no address: write unix:PATH or HOST:PORT, for example 127.0.0.1:7401"
            )),
        }
    }

    /// Connects to the service at this address, for callers that make their own calls.
    ///
    /// # Errors
    /// The system's error.
    pub async fn connect(&self, access: &Access) -> Result<Calls, String> {
        let dialled = tokio::time::timeout(CONNECT_DEADLINE, dial(self, access)).await;
        let dialled =
            dialled.map_err(|_| format!("no connection within {} s", CONNECT_DEADLINE.as_secs()))?;
        dialled.map_err(|error| format!("no connection: {}", innermost(&error)))
    }
}

/// Time to wait for a connection.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
            Self::Registered(registry, participant) => match registry.address_of(participant) {
                Some(address) => f.write_str(&address),
                None => write!(f, "an address that it registers at {}", registry.address()),
            },
            Self::InProcess(_) => f.write_str("this process"),
        }
    }
}

/// A connection to the service at an address.
///
/// # Errors
/// If nothing listens there, or nothing answers, or one end does not trust the other.
pub async fn dial(address: &Address, access: &Access) -> std::io::Result<Calls> {
    match address.clone() {
        Address::Tcp(address) => amalgam_network::dial(move || Ok(address.clone()), access).await,
        Address::Registered(registry, participant) => {
            let whereabouts = move || {
                let address = registry.address_of(&participant);
                address.ok_or_else(|| std::io::Error::new(ErrorKind::NotFound, "it has not registered yet"))
            };
            amalgam_network::dial(whereabouts, access).await
        }
        Address::Unix(path) => dial_unix(&path, access).await,
        Address::InProcess(pipes) => dial_in_process(pipes, access).await,
    }
}

/// Result of a look for a service at an address.
pub(crate) enum Sight {
    /// A service that answers.
    Answers,
    /// A service that accepts connections and does not answer calls.
    Silent,
    /// A machine that answers, where no process listens at the address.
    NobodyListens(String),
    /// A machine from which no answer comes back.
    NoWay(String),
}

/// Looks for a service over a new connection. A service answers even while its solver computes.
pub(crate) async fn look(address: &Address, access: &Access, patience: Duration) -> Sight {
    let mut calls = match tokio::time::timeout(patience, dial(address, access)).await {
        Ok(Ok(calls)) => calls,
        Ok(Err(error)) if nobody_listens(address, &error) => return Sight::NobodyListens(innermost(&error)),
        Ok(Err(error)) => return Sight::NoWay(innermost(&error)),
        Err(_) => return Sight::NoWay(format!("no connection within {} s", patience.as_secs_f64())),
    };
    let request = Outgoing::message(&v1::DescribeRequest { protocol_version: PROTOCOL_VERSION });
    let described = async {
        let answer: Incoming<v1::DescribeResponse> = call(&mut calls, "Describe", request).await?;
        answer.single().await
    };
    match tokio::time::timeout(patience, described).await {
        Ok(Ok(_)) => Sight::Answers,
        _ => Sight::Silent,
    }
}

fn nobody_listens(address: &Address, error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let is_refusal =
        |error: &std::io::Error| matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
    let refused = || causes.filter_map(|error| error.downcast_ref::<std::io::Error>()).any(is_refusal);
    matches!(address, Address::InProcess(_)) || refused()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_or_numbers() {
        for text in ["127.0.0.1:7401", "[fd00::3]:7401", "node-7.cluster:7401", "unix:/tmp/x.sock"] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()), Ok(text.to_string()));
        }
        assert_eq!(
            Address::parse("http://node7:1/").map(|address| address.to_string()),
            Ok("node7:1".into())
        );
        let error = Address::parse("fd00::3:7401").expect_err("no brackets");
        assert!(error.contains("write an IPv6 address in brackets, for example [::1]:7401"), "{error}");
        for text in ["", "node7", ":7401", "node7:70000", "unix:"] {
            assert!(Address::parse(text).expect_err(text).contains("write "), "{text}");
        }
    }

    #[test]
    fn a_look_tells_who_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let patience = Duration::from_millis(200);
        let access = amalgam_network::SecurityOptions { insecure: true, ..Default::default() }
            .access(amalgam_network::Role::Coordinator, amalgam_network::Role::Solver)
            .expect("nothing is read");
        let seen = |text: &str| {
            let address = Address::parse(text).expect("an address");
            runtime.block_on(look(&address, &access, patience))
        };
        // The process never accepts: the kernel completes connections for this listener.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = silent.local_addr().expect("an address").to_string();
        assert!(matches!(seen(&address), Sight::Silent));
        drop(silent);
        assert!(matches!(seen(&address), Sight::NobodyListens(_)));
        assert!(matches!(seen("unix:no-such.sock"), Sight::NobodyListens(_)));
        // Nobody has these addresses.
        assert!(matches!(seen("[100::1]:7401"), Sight::NoWay(_)));
        assert!(matches!(seen("nobody.invalid:7401"), Sight::NoWay(_)));
    }
}
