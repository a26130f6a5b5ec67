//! The participant's section of the scene: reading and checking it. Grains and rigid bodies have sections of
//! their own (`grains/section.rs`, `rigid/section.rs`).

use amalgam_solver_kit::{DragSettings, Fields, ForceSettings, SectionError, parse_section, renamed_keys};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bodies::checks::{Checks, PARTICLES_MAX};
use crate::bodies::grains;
use crate::bodies::layout::{Body, Layout};
use crate::bodies::peridynamic::Peridynamic;
use crate::bodies::points::Points;
use crate::bodies::rigid::RigidShape;
use crate::bodies::scatter::Scatter;
use crate::bodies::sheet::Sheet;
use crate::bodies::volume::Volume;
use crate::linear::system::Limits;

/// The section of the solver of springs and bonds as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// Material of the bodies: `"mass-spring"`, or `"peridynamics"` for bodies with bonds as well.
    method: Method,
    /// Integrator of a step: `"implicit-euler"`, `"hht-alpha"` or `"velocity-verlet"`.
    #[serde(default)]
    integrator: Integrator,
    /// `true`: the participant's own particles collide with each other. Pairs that a spring or a bond joins
    /// never do.
    #[serde(default = "yes")]
    self_collision: bool,
    /// Residual, relative to the right-hand side, at which the linear solve stops; below 1. With bonds
    /// no residual is seen below about 1e-7.
    #[serde(default = "default_tolerance")]
    tolerance: f64,
    /// Iterations after which the linear solve is an error.
    #[serde(default = "default_iterations_max")]
    iterations_max: u32,
    /// Most linear solves per step, each linearised at the result of the last one. Above 1 with
    /// `"implicit-euler"` only.
    #[serde(default = "default_newton_iterations")]
    newton_iterations: u32,
    /// `[[participants.settings.drag]]`: winds, and layers in which waves die.
    #[serde(default)]
    drag: Vec<DragSettings>,
    /// `[[participants.settings.force]]`: fields of force, and soft indenters.
    #[serde(default)]
    force: Vec<ForceSettings>,
    /// `[[participants.settings.bodies]]`, one or more, each with a `type`. Default: none, which is an
    /// error.
    #[serde(default)]
    bodies: Vec<toml::Table>,
}

/// Integrator of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Integrator {
    /// Backward Euler, linearised once.
    #[default]
    ImplicitEuler,
    /// The implicit method of Hilber, Hughes and Taylor, linearised once, in its leapfrog form.
    HhtAlpha,
    /// Explicit, in its leapfrog form.
    VelocityVerlet,
}

/// Weights of the force one step ahead and two steps back in the method of [HilberHughesTaylor1977]
/// with alpha = -1/3, which damps the fastest oscillations most: without velocities and
/// accelerations, its mean force is `(8 f[n+1] + 12 f[n] + 6 f[n-1] + f[n-2]) / 27`.
pub(crate) const HHT_NEXT: f64 = 8.0 / 27.0;
pub(crate) const HHT_LAST: f64 = 1.0 / 27.0;

impl Integrator {
    /// True if steps solve a system.
    pub(crate) fn is_implicit(self) -> bool {
        self != Self::VelocityVerlet
    }

    /// The factors of forces and damping [s], and of K in the system [s^2], of a step of length `dt` after
    /// one of length `last` (0 before the first step).
    ///
    /// In leapfrog form velocities are those in the middle of steps, so that a kick lasts from the middle of
    /// the last step to the middle of this one. With the length of the step alone, steps that grow as a body
    /// slows down would take its energy.
    pub(crate) fn factors(self, dt: f64, last: f64) -> (f64, f64) {
        let kick = if last > 0.0 { 0.5 * (last + dt) } else { dt };
        match self {
            Self::ImplicitEuler => (dt, dt * dt),
            Self::HhtAlpha => (kick, HHT_NEXT * dt * kick),
            Self::VelocityVerlet => (kick, 0.0),
        }
    }
}

/// Material of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// Springs.
    MassSpring,
    /// Bonds that break, beside springs.
    Peridynamics,
    /// Loose grains, with a solver of their own.
    Grains,
    /// Rigid bodies, with a solver of their own.
    Rigid,
}

pub(crate) fn yes() -> bool {
    true
}

fn default_tolerance() -> f64 {
    1e-8
}

fn default_iterations_max() -> u32 {
    10_000
}

fn default_newton_iterations() -> u32 {
    1
}

/// A checked section, laid out.
pub(crate) struct Solid {
    pub(crate) layout: Layout,
    pub(crate) fields: Fields,
    pub(crate) self_collision: bool,
    pub(crate) limits: Limits,
    pub(crate) newton_iterations: u32,
    pub(crate) integrator: Integrator,
}

/// The method of a section, if it names one.
pub(crate) fn method(section: &str) -> Option<Method> {
    #[derive(Deserialize)]
    struct Only {
        method: Method,
    }
    toml::from_str::<Only>(section).ok().map(|only| only.method)
}

/// Reads a section of the mass-spring solver. `seed` is the scene's.
///
/// # Errors
/// Every fault found, each with its key.
pub(crate) fn read(section: &str, seed: u64) -> Result<Solid, Vec<SectionError>> {
    let renamed = renamed_keys(section, &[("max_iterations", "iterations_max")]);
    if !renamed.is_empty() {
        return Err(renamed);
    }
    let section: Section = parse_section(section)?;
    let mut checks = Checks { seed, ..Checks::default() };
    checks.positive("tolerance", section.tolerance);
    checks
        .that(section.tolerance < 1.0, "tolerance", || "must be below 1: write e.g. tolerance = 1e-8".into());
    checks.that(section.iterations_max > 0, "iterations_max", || {
        "must be at least 1: write e.g. iterations_max = 10000".into()
    });
    checks.that(section.newton_iterations > 0, "newton_iterations", || {
        "must be at least 1, which linearises once a step: write e.g. newton_iterations = 5".into()
    });
    checks.that(
        section.newton_iterations == 1 || section.integrator != Integrator::HhtAlpha,
        "newton_iterations",
        || {
            "stands beside integrator = \"hht-alpha\", which is linearised once: write newton_iterations = 1, or \
             integrator = \"implicit-euler\""
                .into()
        },
    );
    let fields = checks.fields(section.drag, section.force);
    let layout = lay_out(section.bodies, section.method, section.self_collision, &mut checks);
    checks.result()?;
    let limits = Limits {
        tolerance: section.tolerance,
        forcing: 0.0,
        floor: 0.0,
        iterations_max: section.iterations_max,
    };
    Ok(Solid {
        layout,
        fields,
        self_collision: section.self_collision,
        limits,
        newton_iterations: section.newton_iterations,
        integrator: section.integrator,
    })
}

/// Particles and springs of all bodies.
pub(crate) fn lay_out(
    bodies: Vec<toml::Table>,
    method: Method,
    self_collision: bool,
    checks: &mut Checks,
) -> Layout {
    checks.that(!bodies.is_empty(), "bodies", || {
        format!("there is no body: write at least one [[bodies]] with {TYPES}")
    });
    let mut layout = Layout { self_collision, part: checks.part, ..Layout::default() };
    for (index, table) in bodies.into_iter().enumerate() {
        checks.path = format!("bodies[{index}].");
        let before = checks.faults.len();
        let Some(mut body) = read_body(table, method, checks) else { continue };
        body.read_files(checks);
        if checks.faults.len() == before {
            body.check(self_collision, checks);
        }
        if checks.faults.len() > before {
            continue;
        }
        let first = layout.particles.len();
        if body.has_parts() || checks.part.part == 0 {
            body.lay_out(&mut layout);
        }
        layout.spin.resize(layout.particles.len(), body.angular_velocity());
        layout.lever.resize(layout.particles.len(), body.lever());
        layout.bodies.push(first..layout.particles.len());
        for key in std::mem::take(&mut layout.empty_parts) {
            checks.fault(&key, "holds no particle: write a part that does, or leave it out");
        }
        if layout.particles.len() > PARTICLES_MAX {
            checks.fault(
                "",
                format!("makes more than {PARTICLES_MAX} particles: write fewer or coarser bodies"),
            );
            break;
        }
    }
    checks.path.clear();
    if checks.faults.is_empty()
        && let Err(error) = layout.particles.validate()
    {
        checks.fault("bodies", error.to_string());
    }
    layout
}

const TYPES: &str = "type = \"sheet\", \"volume\", \"points\", \"grains\", \"scatter\" or, with method = \"peridynamics\", \
                     \"peridynamic\"";

/// A body from its table. It is read here and not by serde's tagged enums because those lose the path of a
/// faulty key.
fn read_body(mut table: toml::Table, method: Method, checks: &mut Checks) -> Option<Box<dyn Body>> {
    let kind = table.remove("type");
    let kind = kind.as_ref().and_then(toml::Value::as_str);
    match kind {
        Some("rigid") if method == Method::Rigid => {
            read_table::<RigidShape>(table, checks).map(|body| Box::new(body) as _)
        }
        Some("rigid") => {
            checks.fault("type", "is a rigid body: write method = \"rigid\" for the participant");
            None
        }
        _ if method == Method::Rigid => {
            checks.fault("type", "stands for no rigid body: write type = \"rigid\"");
            None
        }
        Some("sheet") => read_table::<Sheet>(table, checks).map(|body| Box::new(body) as _),
        Some("points") => read_table::<Points>(table, checks).map(|body| Box::new(body) as _),
        Some("volume") => read_table::<Volume>(table, checks).map(|body| Box::new(body) as _),
        Some("grains") => read_table::<grains::Grains>(table, checks).map(|body| Box::new(body) as _),
        Some("scatter") => read_table::<Scatter>(table, checks).map(|body| Box::new(body) as _),
        Some("peridynamic") if method == Method::Peridynamics => {
            read_table::<Peridynamic>(table, checks).map(|body| Box::new(body) as _)
        }
        Some("peridynamic") => {
            checks.fault("type", "has bonds that break: write method = \"peridynamics\" for the participant");
            None
        }
        _ => {
            checks.fault("type", format!("write {TYPES}"));
            None
        }
    }
}

fn read_table<T: DeserializeOwned>(table: toml::Table, checks: &mut Checks) -> Option<T> {
    match serde_path_to_error::deserialize(toml::Value::Table(table)) {
        Ok(body) => Some(body),
        Err(error) => {
            let path = error.path().to_string();
            checks.fault(if path == "." { "" } else { &path }, error.into_inner().message());
            None
        }
    }
}
