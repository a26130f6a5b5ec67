//! The participant's section of the scene: reading and checking it.

use amalgam_particles::DVec3;
use amalgam_solver_kit::{SectionError, parse_section};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bodies::{Body, Layout};
use crate::conjugate_gradients::Limits;
use crate::grains::Grains;
use crate::peridynamic::Peridynamic;
use crate::points::Points;
use crate::sheet::Sheet;

/// Particles that one participant may have.
pub(crate) const PARTICLES_MAX: usize = 1 << 24;

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    method: Method,
    #[serde(default)]
    integrator: Integrator,
    /// Whether own particles collide with each other, those apart that a spring joins.
    #[serde(default = "yes")]
    self_collision: bool,
    /// Residual at which the linear solve stops, relative to the right-hand side.
    #[serde(default = "default_tolerance")]
    tolerance: f64,
    /// Iterations after which the linear solve is an error.
    #[serde(default = "default_max_iterations")]
    max_iterations: u32,
    #[serde(default)]
    bodies: Vec<toml::Table>,
}

/// What bodies may be made of.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    /// Springs.
    MassSpring,
    /// Bonds that break, beside springs.
    Peridynamics,
}

/// How a step is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Integrator {
    /// Backward Euler, linearised once.
    #[default]
    ImplicitEuler,
    /// Explicit, in its leapfrog form.
    VelocityVerlet,
}

fn yes() -> bool {
    true
}

fn default_tolerance() -> f64 {
    1e-8
}

fn default_max_iterations() -> u32 {
    10_000
}

/// A checked section, laid out.
pub(crate) struct Solid {
    pub(crate) layout: Layout,
    pub(crate) self_collision: bool,
    pub(crate) limits: Limits,
    pub(crate) integrator: Integrator,
}

/// Reads a section.
///
/// # Errors
/// Every fault found, each with its key.
pub(crate) fn read(section: &str) -> Result<Solid, Vec<SectionError>> {
    let section: Section = parse_section(section)?;
    let mut checks = Checks::default();
    checks.positive("tolerance", section.tolerance);
    checks
        .that(section.tolerance < 1.0, "tolerance", || "must be below 1: write e.g. tolerance = 1e-8".into());
    checks.that(section.max_iterations > 0, "max_iterations", || {
        "must be at least 1: write e.g. max_iterations = 10000".into()
    });
    checks.that(!section.bodies.is_empty(), "bodies", || {
        "there is no body: write at least one [[bodies]] with type = \"sheet\", \"points\" or \"grains\""
            .into()
    });
    let mut layout = Layout::default();
    for (index, table) in section.bodies.into_iter().enumerate() {
        checks.path = format!("bodies[{index}].");
        let before = checks.faults.len();
        let Some(body) = read_body(table, section.method, &mut checks) else { continue };
        body.check(section.self_collision, &mut checks);
        if checks.faults.len() > before {
            continue;
        }
        body.lay_out(&mut layout);
        if layout.particles.len() > PARTICLES_MAX {
            checks.fault(
                "",
                format!("makes more than {PARTICLES_MAX} particles: write fewer or coarser bodies"),
            );
            break;
        }
    }
    if checks.faults.is_empty()
        && let Err(error) = layout.particles.validate()
    {
        checks.faults.push(SectionError::new("bodies", error.to_string()));
    }
    if !checks.faults.is_empty() {
        return Err(checks.faults);
    }
    let limits = Limits { tolerance: section.tolerance, max_iterations: section.max_iterations };
    Ok(Solid { layout, self_collision: section.self_collision, limits, integrator: section.integrator })
}

/// A body from its table. It is read here and not by serde's tagged enums because those lose the path of a faulty key.
fn read_body(mut table: toml::Table, method: Method, checks: &mut Checks) -> Option<Box<dyn Body>> {
    match table.remove("type").as_ref().and_then(toml::Value::as_str) {
        Some("sheet") => read_table::<Sheet>(table, checks).map(|body| Box::new(body) as _),
        Some("points") => read_table::<Points>(table, checks).map(|body| Box::new(body) as _),
        Some("grains") => read_table::<Grains>(table, checks).map(|body| Box::new(body) as _),
        Some("peridynamic") if method == Method::Peridynamics => {
            read_table::<Peridynamic>(table, checks).map(|body| Box::new(body) as _)
        }
        Some("peridynamic") => {
            checks.fault("type", "has bonds that break: write method = \"peridynamics\" for the participant");
            None
        }
        _ => {
            checks.fault(
                "type",
                "write type = \"sheet\", type = \"points\", type = \"grains\" or, with method = \"peridynamics\", \
                 type = \"peridynamic\"",
            );
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

/// Collects faults, with the path of the table that is being checked.
#[derive(Default)]
pub(crate) struct Checks {
    path: String,
    faults: Vec<SectionError>,
}

impl Checks {
    /// Records a fault at `key` of the current table; an empty key is the table itself.
    pub(crate) fn fault(&mut self, key: &str, message: impl Into<String>) {
        let path = format!("{}{key}", self.path);
        self.faults.push(SectionError::new(path.trim_end_matches('.'), message));
    }

    /// Records a fault unless `condition` holds.
    pub(crate) fn that(&mut self, condition: bool, key: &str, message: impl FnOnce() -> String) {
        if !condition {
            self.fault(key, message());
        }
    }

    /// A number above 0 and finite.
    pub(crate) fn positive(&mut self, key: &str, value: f64) {
        self.that(value > 0.0 && value.is_finite(), key, || {
            format!("must be positive and finite, not {value}")
        });
    }

    /// A number that is 0 or above, and finite.
    pub(crate) fn not_negative(&mut self, key: &str, value: f64) {
        self.that(value >= 0.0 && value.is_finite(), key, || {
            format!("must be 0 or positive, and finite, not {value}")
        });
    }

    /// A finite vector.
    pub(crate) fn finite(&mut self, key: &str, value: DVec3) {
        self.that(value.is_finite(), key, || format!("must be three finite numbers, not {value}"));
    }
}
