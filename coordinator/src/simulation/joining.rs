//! Connection of a run to its participants: their services are connected, waited for if necessary, and
//! initialised.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{join_all, try_join_all};

use crate::error::CoordinatorError;
use crate::instruments::probes::nearest_to;
use crate::participant::connection::{Connection, ParticipantPlan};
use crate::simulation::{Cancel, PARTICIPANTS_MAX, Simulation};
use crate::state::order::Order;
use crate::state::setup::Plan;

/// Time between two attempts to reach a service that is waited for.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two lines about a service that is waited for.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Parameters of a run's connection to its participants.
pub struct Joining<'a> {
    /// Name of the run. Services refuse calls for another run.
    pub run_id: String,
    /// Number of the run's start with its services, from 1. Services refuse calls for an earlier start.
    pub epoch: u64,
    /// Ends the waiting.
    pub cancel: &'a Cancel,
    /// Gets a line of text from time to time about each service that is waited for.
    pub tell: &'a dyn Fn(&str),
}

/// A name that no other run of the scene has.
pub fn new_run_id(scene: &str) -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{scene}-{}-{}", std::process::id(), since_epoch.as_nanos())
}

impl Simulation {
    /// Connects to all participants and initialises them. Every section of the scene has then been checked.
    ///
    /// # Errors
    /// A participant that cannot be reached or does not match the scene, or a fault of the scene.
    pub fn connect(
        plan: Plan,
        participants: Vec<ParticipantPlan>,
        cancel: &Cancel,
    ) -> Result<Self, CoordinatorError> {
        let run_id = new_run_id(&plan.scene);
        Self::join(plan, &participants, &Joining { run_id, epoch: 1, cancel, tell: &|_| () })
    }

    /// Connects as [`Self::connect`] does, with a given name and epoch of the run, and reports on the
    /// services that are waited for.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub fn join(
        plan: Plan,
        participants: &[ParticipantPlan],
        joining: &Joining<'_>,
    ) -> Result<Self, CoordinatorError> {
        if participants.is_empty() || participants.len() > PARTICIPANTS_MAX {
            let count = participants.len();
            return Err(CoordinatorError::Scene(format!(
                "a scene has 1 to {PARTICIPANTS_MAX} participants, this one {count}"
            )));
        }
        let obstacles = plan.domain.all_obstacles().map_err(CoordinatorError::Scene)?;
        // I/O is done on the thread that waits for it: a hand-over between threads costs more than the
        // message.
        let io = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CoordinatorError::Runtime)?;
        let deadline = Duration::from_secs_f64(plan.coupling.step_deadline);
        let (connected, tables) = io.block_on(async {
            let work = async {
                let calls = participants.iter().map(|plan| reach(plan, joining, deadline));
                let mut connected = try_join_all(calls).await?;
                let calls = connected.iter_mut().zip(participants).map(|(connection, p)| {
                    let nearest_to = nearest_to(&plan.probes, &p.name);
                    connection.initialize(&p.section, (&plan.domain, &obstacles), plan.seed, nearest_to)
                });
                let tables =
                    join_all(calls).await.into_iter().collect::<Result<Vec<_>, CoordinatorError>>()?;
                Ok((connected, tables))
            };
            tokio::select! {
                done = work => done,
                () = wait_for(joining.cancel) => Err(CoordinatorError::Cancelled),
            }
        })?;
        let kinds = connected.iter().zip(&tables).map(|(connection, table)| {
            (connection.name.as_str(), table.integration.unwrap_or(connection.description.integration))
        });
        let chosen = plan.coupling.choose(kinds).map_err(CoordinatorError::Scene)?;
        let names: Vec<&str> = connected.iter().map(|connection| connection.name.as_str()).collect();
        let order = Order::new(&names, chosen.method.properties().orders_by_name);
        let (connected, tables) = (order.run_order(connected), order.run_order(tables));
        Self::new(io, plan, chosen, order, &obstacles, (connected, tables))
    }
}

/// Connects to a service, with repeated attempts for as long as the plan allows.
async fn reach(
    plan: &ParticipantPlan,
    joining: &Joining<'_>,
    deadline: Duration,
) -> Result<Connection, CoordinatorError> {
    let (since, mut told) = (Instant::now(), None::<Instant>);
    loop {
        let reason = match Connection::connect(plan, &joining.run_id, joining.epoch, deadline).await {
            Err(CoordinatorError::Connect { reason, .. }) if since.elapsed() < plan.wait => reason,
            done => return done,
        };
        if told.is_none_or(|told| told.elapsed() >= TELL_INTERVAL) {
            let (name, address, longest) = (&plan.name, &plan.address, plan.wait.as_secs_f64());
            (joining.tell)(&format!(
                "waiting for participant {name} at {address}, at most {longest} s: {reason}"
            ));
            told = Some(Instant::now());
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn wait_for(cancel: &Cancel) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
