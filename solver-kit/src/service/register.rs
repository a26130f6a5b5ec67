//! Registration of a service at a coordinator that listens.

use std::net::SocketAddr;
use std::time::Duration;

use amalgam_network::{Access, Listen, Role, SecurityOptions};
use amalgam_proto::registry::RegisterRequest;
use amalgam_proto::registry::registry_client::RegistryClient;
use anyhow::bail;
use tonic::Status;

use crate::solver::Description;

/// Time for a registration, and between two attempts if none succeeded.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two attempts to reach a registry that does not listen.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Options for the registration of a service.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Registration {
    /// Tell the run that listens at HOST:PORT (amalgam run --registry) where this service is.
    #[arg(long, value_name = "HOST:PORT", requires = "name")]
    pub register: Option<String>,
    /// The participant of the scene that this service computes.
    #[arg(long, value_name = "PARTICIPANT", requires = "register")]
    pub name: Option<String>,
    /// Address to tell the run, if it is not the one that this service listens at.
    #[arg(long, value_name = "HOST:PORT", requires = "register")]
    pub announce: Option<String>,
}

/// Data for a registration.
pub(crate) struct Registering {
    registry: String,
    participant: String,
    announce: Option<String>,
    access: Access,
}

impl Registration {
    /// Data for the registration, if one is wanted.
    pub(crate) fn plan(&self, security: &SecurityOptions) -> anyhow::Result<Option<Registering>> {
        let (Some(registry), Some(participant)) = (&self.register, &self.name) else { return Ok(None) };
        for (option, address) in [("--register", Some(registry)), ("--announce", self.announce.as_ref())] {
            if let Some(address) = address
                && !matches!(address.parse(), Ok(Listen::Tcp(_)))
            {
                bail!("{option} {address:?} is no address: write HOST:PORT, for example node1:7400");
            }
        }
        let access = security.access(Role::Solver, Role::Coordinator)?;
        let (registry, participant) = (registry.clone(), participant.clone());
        Ok(Some(Registering { registry, participant, announce: self.announce.clone(), access }))
    }
}

/// Registers a service that listens at `address`, again and again: a coordinator that starts later, or anew,
/// then finds it.
pub(crate) async fn register(plan: Registering, description: Description, address: String) {
    let mut request = RegisterRequest {
        participant: plan.participant.clone(),
        solver: description.name.into(),
        version: description.version.into(),
        address: String::new(),
        host: amalgam_network::host_name(),
        process: std::process::id(),
    };
    let mut told = None;
    loop {
        match register_as_long_as_it_goes(&plan, &mut request, &address, &mut told).await {
            // A coordinator that has not started yet is no reason for a message.
            Problem::NotThere => (),
            Problem::Refused(reason) => {
                tell(&mut told, format!("registration at {} failed: {reason}", plan.registry))
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Reasons for which a registration ended.
enum Problem {
    NotThere,
    Refused(String),
}

/// Says something, if it is not what was said last.
fn tell(told: &mut Option<String>, text: String) {
    if told.as_ref() != Some(&text) {
        tracing::warn!("{text}");
        *told = Some(text);
    }
}

async fn register_as_long_as_it_goes(
    plan: &Registering,
    request: &mut RegisterRequest,
    address: &str,
    told: &mut Option<String>,
) -> Problem {
    let registry = plan.registry.clone();
    let dialled = amalgam_network::dial(move || Ok(registry.clone()), &plan.access);
    let calls = match tokio::time::timeout(PATIENCE, dialled).await {
        Ok(Ok(calls)) => calls,
        Ok(Err(error)) if amalgam_network::is_refusal(&error) => {
            return Problem::Refused(amalgam_network::innermost(&error));
        }
        Ok(Err(_)) | Err(_) => return Problem::NotThere,
    };
    let mut client = RegistryClient::new(calls);
    loop {
        request.address = match &plan.announce {
            Some(announced) => announced.clone(),
            None => reachable(address, &plan.registry).await,
        };
        let answer = tokio::time::timeout(PATIENCE, client.register(request.clone())).await;
        let again = match answer {
            Ok(Ok(answer)) => answer.into_inner().again_after_ms,
            Ok(Err(status)) if is_words_of_the_registry(&status) => {
                return Problem::Refused(status.message().into());
            }
            Ok(Err(_)) | Err(_) => return Problem::NotThere,
        };
        *told = None;
        let again = Duration::from_millis(again.into()).clamp(RETRY_INTERVAL, 2 * PATIENCE);
        tokio::time::sleep(again).await;
    }
}

fn is_words_of_the_registry(status: &Status) -> bool {
    std::error::Error::source(status).is_none() && status.code() != tonic::Code::Unavailable
}

/// Address at which others reach a service. A service that listens everywhere is reached by the address with
/// which this machine reaches them.
async fn reachable(address: &str, registry: &str) -> String {
    let Ok(listening) = address.parse::<SocketAddr>() else { return address.into() };
    if !listening.ip().is_unspecified() {
        return address.into();
    }
    let own = async {
        let there = tokio::net::lookup_host(registry).await?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        // Nothing is sent: the system only looks up the route.
        let socket = tokio::net::UdpSocket::bind(any).await?;
        socket.connect(there).await?;
        socket.local_addr()
    };
    match own.await {
        Ok(own) => SocketAddr::new(own.ip(), listening.port()).to_string(),
        Err(_) => address.into(),
    }
}
