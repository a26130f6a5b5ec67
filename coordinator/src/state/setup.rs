//! Setup of a run: all that is fixed at its start, and checks of it.

use amalgam_meshes::Obstacles;
use amalgam_particles::{Lattice, Obstacle, PairFinder, Spheres};
use amalgam_proto::contract::{Integration, Table};

use crate::contacts::mesh::SurfaceMesh;
use crate::error::CoordinatorError;
use crate::participant::Participant;
use crate::participant::connection::Connection;
use crate::settings::{
    ChosenMethod, ContactSettings, CouplingSettings, DomainSettings, MethodProperties, ProbeSettings,
    TimeSettings,
};
use crate::state::order::Order;
use crate::state::surfaces::Surfaces;

/// The part of a scene that the coordinator reads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the scene.
    pub scene: String,
    /// Seed of everything random.
    pub seed: u64,
    /// `[domain]`.
    pub domain: DomainSettings,
    /// `[time]`.
    pub time: TimeSettings,
    /// `[coupling]`.
    pub coupling: CouplingSettings,
    /// `[[probes]]`.
    pub probes: Vec<ProbeSettings>,
}

/// All that the scene and the participants' particle tables fix. Phases read it, and none changes it.
pub(crate) struct Setup {
    pub(crate) plan: Plan,
    /// Method of contact, by the plan or by default.
    pub(crate) chosen: ChosenMethod,
    /// Order of the participants.
    pub(crate) order: Order,
    /// The grid of surveys.
    pub(crate) lattice: Lattice,
    /// Contact of the surfaces of each pair of participants.
    pub(crate) surfaces: Surfaces,
    /// The triangles of each participant by which it touches others; none if it does by its spheres.
    pub(crate) meshes: Vec<Option<SurfaceMesh>>,
    pub(crate) obstacles: Obstacles,
    /// Factor of alpha for the contacts of each participant.
    pub(crate) elasticity: Vec<f64>,
    /// True for participants that have contacts with obstacles.
    pub(crate) meets_obstacles: Vec<bool>,
}

impl Setup {
    /// Setup of a run of these participants, in the run's order.
    ///
    /// # Errors
    /// A fault of the scene.
    pub(crate) fn new(
        plan: Plan,
        chosen: ChosenMethod,
        order: Order,
        obstacles: &[Obstacle],
        (connections, tables): (&[Connection], &[Table]),
    ) -> Result<Self, CoordinatorError> {
        let names: Vec<String> = connections.iter().map(|connection| connection.name.clone()).collect();
        check_immovable(&names, tables)?;
        let obstacles = Obstacles::new(obstacles);
        let surfaced = names.iter().chain(plan.domain.obstacles.iter().map(|obstacle| &obstacle.name));
        let surfaces = Surfaces::new(&plan.coupling, &surfaced.cloned().collect::<Vec<_>>(), names.len())?;
        let lattice = Lattice { origin: plan.domain.min, cell_size: cell_size(tables) };
        let elasticity =
            connections.iter().map(|connection| f64::from(u8::from(connection.elastic))).collect();
        let meets_obstacles: Vec<bool> = tables.iter().map(|table| !table.keeps_off_obstacles).collect();
        check_friction_at_obstacles(&plan, &names, &meets_obstacles)?;
        let meshes = meshes(&plan.coupling, chosen.method.properties(), &names, tables)?;
        Ok(Self { plan, chosen, order, lattice, surfaces, meshes, obstacles, elasticity, meets_obstacles })
    }

    /// Refuses participants and obstacles that the scene's method of contact cannot treat.
    ///
    /// # Errors
    /// A fault of the scene.
    pub(crate) fn check(&self, participants: &[Participant]) -> Result<(), CoordinatorError> {
        let method = self.chosen.method.properties();
        check_method(method, participants)?;
        check_obstacles(&self.plan, method, participants)
    }
}

/// The triangles of the participants that `[coupling] triangles` names.
fn meshes(
    coupling: &CouplingSettings,
    method: MethodProperties,
    names: &[String],
    tables: &[Table],
) -> Result<Vec<Option<SurfaceMesh>>, CoordinatorError> {
    let mut meshes: Vec<Option<SurfaceMesh>> = names.iter().map(|_| None).collect();
    for name in &coupling.triangles {
        let fault = |reason: String| CoordinatorError::Scene(format!("coupling.triangles: {reason}"));
        let Some(k) = names.iter().position(|known| known == name) else {
            return Err(fault(format!("there is no participant {name:?}, but {}", names.join(", "))));
        };
        if !method.on_surfaces {
            return Err(fault("write method = \"contact-law\", which knows contacts with triangles".into()));
        }
        if tables[k].triangles.is_empty() {
            return Err(fault(format!(
                "participant {name:?} has no triangles. Sheets and volumes of cells have them"
            )));
        }
        meshes[k] = Some(SurfaceMesh::new(&tables[k]));
    }
    Ok(meshes)
}

/// Refuses rotating bodies without the contact law or of implicit participants, and several projections.
fn check_method(method: MethodProperties, participants: &[Participant]) -> Result<(), CoordinatorError> {
    let is_refused = |participant: &&Participant| {
        let is_carried = method.on_surfaces && participant.kind == Integration::Explicit;
        participant.part.roster.has_bodies() && !is_carried
    };
    if let Some(participant) = participants.iter().find(is_refused) {
        return Err(CoordinatorError::Scene(format!(
            "participant {} has bodies that turn, which need contacts with friction and an explicit solver: write \
             method = \"contact-law\" under [coupling]",
            participant.part.connection.name
        )));
    }
    let projections = participants.iter().filter(|participant| participant.kind == Integration::Projection);
    let projections: Vec<&str> =
        projections.map(|participant| participant.part.connection.name.as_str()).collect();
    if let [first, second, ..] = projections[..] {
        return Err(CoordinatorError::Scene(format!(
            "participants {first} and {second} are both pressure projections, whose pressures would make energy where they \
             touch: put both into one participant, or compute one of them by an explicit method"
        )));
    }
    Ok(())
}

/// Refuses obstacles without the contact law, and an obstacle that has the name of a participant.
fn check_obstacles(
    plan: &Plan,
    method: MethodProperties,
    participants: &[Participant],
) -> Result<(), CoordinatorError> {
    let Some(first) = plan.domain.obstacles.first() else { return Ok(()) };
    if !method.on_surfaces {
        return Err(CoordinatorError::Scene(format!(
            "obstacle {} is for the contact law: write method = \"contact-law\" under [coupling]",
            first.name
        )));
    }
    let is_participant =
        |name: &String| participants.iter().any(|participant| &participant.part.connection.name == name);
    match plan.domain.obstacles.iter().find(|obstacle| is_participant(&obstacle.name)) {
        Some(obstacle) => Err(CoordinatorError::Scene(format!(
            "an obstacle and a participant are both called {}: give each a name of its own",
            obstacle.name
        ))),
        None => Ok(()),
    }
}

/// Refuses contacts of obstacles with participants that have no contacts there (`meets_obstacles`).
fn check_friction_at_obstacles(
    plan: &Plan,
    names: &[String],
    meets_obstacles: &[bool],
) -> Result<(), CoordinatorError> {
    for (at, entry) in plan.coupling.contact.iter().enumerate() {
        let is_smooth = ContactSettings { between: entry.between.clone(), ..Default::default() } == *entry;
        let keeps_off =
            |name: &&String| names.iter().position(|own| own == *name).is_some_and(|k| !meets_obstacles[k]);
        let is_obstacle = |name: &String| plan.domain.obstacles.iter().any(|obstacle| &obstacle.name == name);
        let participant = entry.between.iter().find(keeps_off);
        if let Some(name) = participant.filter(|_| !is_smooth && entry.between.iter().any(is_obstacle)) {
            return Err(CoordinatorError::Scene(format!(
                "coupling.contact[{at}] is for contacts of {} with {}, but the solver of {name} itself keeps its particles \
                 off obstacles, smoothly: leave this contact out",
                entry.between[0], entry.between[1]
            )));
        }
    }
    Ok(())
}

/// Edge of the cells of surveys [m]: four times the median radius, but so large that no particle spans more
/// than 17 cells.
fn cell_size(tables: &[Table]) -> f64 {
    let mut radii: Vec<(f64, u64)> = Vec::new();
    for (radius, count) in tables.iter().flat_map(Table::radii) {
        match radii.last_mut() {
            Some((last, sum)) if *last == radius => *sum += count,
            _ => radii.push((radius, count)),
        }
    }
    radii.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(largest, _)) = radii.last() else { return 1.0 };
    let middle = radii.iter().map(|(_, count)| count).sum::<u64>() / 2;
    let mut below = 0;
    let is_below = |&&(_, count): &&(f64, u64)| {
        below += count;
        below <= middle
    };
    let median = radii[radii.iter().take_while(is_below).count()].0;
    (4.0 * median).max(largest / 8.0)
}

/// Refuses immovable particles of different participants that overlap, since they can never be parted. Each
/// participant checks its own particles itself.
fn check_immovable(names: &[String], tables: &[Table]) -> Result<(), CoordinatorError> {
    let (mut class, mut place) = (Vec::new(), Vec::new());
    let (mut position, mut radius) = (Vec::new(), Vec::new());
    for (k, Table { particles, .. }) in tables.iter().enumerate() {
        for i in (0..particles.len()).filter(|&i| particles.immovable[i]) {
            class.push(k as u16);
            place.push(i);
            position.push(particles.position[i]);
            radius.push(particles.radius[i]);
        }
    }
    let spheres = Spheres { position: &position, radius: &radius, class: Some(&class) };
    match PairFinder::new().find(spheres, |_, _| true).first() {
        None => Ok(()),
        Some(&(i, j)) => {
            let (i, j) = (i as usize, j as usize);
            let name = |i: usize| names[usize::from(class[i])].clone();
            let id = |i: usize| tables[usize::from(class[i])].particles.id[place[i]].0;
            Err(CoordinatorError::ImmovableOverlap {
                participant_a: name(i),
                a: id(i),
                participant_b: name(j),
                b: id(j),
                distance: position[i].distance(position[j]),
                radius_a: radius[i],
                radius_b: radius[j],
            })
        }
    }
}
