//! `amalgam serve coordinator`: scenes are submitted, queued and computed, for clients that come and go.
//!
//! The contract is `amalgam.coordinator.v1` (docs/guide/coordinator.md). [`Runs`] is all of it but the
//! network.

mod feed;
mod incoming;
mod record;
mod results;
mod rpc;
pub mod runs;

use std::{sync::Arc, time::Duration};

use amalgam_proto::{
    COORDINATOR_DESCRIPTORS, coordinator::coordinator_server::CoordinatorServer, message_limit,
};
use amalgam_solver_kit::{Role, end_of_service, listen, serve_routes, with_health_and_reflection};
use tonic::{server::NamedService as _, service::Routes};

use crate::{
    cli::{CoordinatorArgs, Reach},
    error::{CommandError, ending::EXIT_INTERRUPTED},
    run::metrics::{self, Metrics},
};
use rpc::Service;
use runs::{Limits, Runs};

/// Roles that may give orders.
const CALLERS: &[Role] = &[Role::Operator];

/// Time for clients to take what they were sent, after all runs have ended.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until SIGTERM, SIGINT or, if asked for, the end of standard input; runs are then stopped, with
/// checkpoints. A second signal ends the process at once.
///
/// # Errors
/// A folder that cannot be used, or an address that cannot be listened at.
pub fn serve(args: &CoordinatorArgs) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::Failed(error.to_string());
    let gate = args.security.gate(Role::Coordinator, CALLERS);
    let gate = gate.map_err(|error| CommandError::Usage(format!("{error:#}")))?;
    let all = Metrics::default();
    let limits =
        Limits { running: args.running as usize, queued: args.queued as usize, stored: args.stored as usize };
    let reach = Reach { security: args.security.clone(), ..Reach::default() };
    let threads = args.threads.map(|threads| threads as usize);
    let runs = Runs::open(&args.dir, limits, threads, reach, all.clone())?;
    if let Some(at) = &args.metrics {
        let address = metrics::serve(all, at);
        let address =
            address.map_err(|error| CommandError::Usage(format!("cannot serve metrics at {at}: {error}")))?;
        crate::console::note(format_args!("metrics at {address}/metrics"));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    let served = runtime.block_on(async {
        let end = end_of_service(args.exit_with_stdin)?;
        let service = CoordinatorServer::new(Service::new(Arc::clone(&runs)))
            .max_decoding_message_size(message_limit())
            .max_encoding_message_size(message_limit());
        let name = CoordinatorServer::<Service>::NAME;
        let routes = with_health_and_reflection(Routes::new(service), name, COORDINATOR_DESCRIPTORS).await?;
        let listening = listen(&args.listen, &gate).await?;
        let (ended, over) = tokio::sync::oneshot::channel::<()>();
        let ending = Arc::clone(&runs);
        let end = async move {
            end.await;
            tokio::spawn(second_signal());
            // Runs end after their current step and a checkpoint; followers are told.
            let _ = tokio::task::spawn_blocking(move || ending.end()).await;
            let _ = ended.send(());
        };
        let late = async {
            let _ = over.await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = serve_routes(listening, &gate, routes, end) => served,
            () = late => Ok(()),
        }
    });
    runs.end();
    runtime.shutdown_background();
    served.map_err(|error| CommandError::Failed(format!("{error:#}")))
}

/// Ends the process at a signal: a user does not want to wait, or a step does not end. The service's solvers
/// end with their standard input.
async fn second_signal() {
    if let Ok(end) = end_of_service(false) {
        end.await;
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    }
}
