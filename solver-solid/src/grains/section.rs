//! The section of the scene that describes grains.

use amalgam_particles::shapes::Layers;
use amalgam_particles::{ParticleId, Particles};
use amalgam_solver_kit::{
    DragSettings, Fields, ForceSettings, Numbered, Ranks, SectionError, SolverError, World, agreed, numbered,
    parse_section,
};
use serde::Deserialize;

use crate::bodies::checks::Checks;
use crate::bodies::layout::Layout;
use crate::grains::gravity::Gravity;
use crate::section::{Method, lay_out, yes};

/// The section of the grain solver as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrainSection {
    /// `"grains"`.
    #[serde(rename = "method")]
    _method: Method,
    /// `true`: grains collide with each other.
    #[serde(default = "yes")]
    self_collision: bool,
    /// Constant of gravitation G [m^3/(kg s^2)]. Grains attract each other if it is not 0.
    #[serde(default)]
    gravitational_constant: f64,
    /// Length below which attraction is softened [m].
    #[serde(default)]
    softening: f64,
    /// Number of grains up to which each pair is summed. Above, a tree is used.
    #[serde(default = "default_direct_max")]
    direct_max: usize,
    /// Opening angle of the tree, 0 (exact) to 1. A cell counts as one if its edge over its distance is
    /// below.
    #[serde(default = "default_opening_angle")]
    opening_angle: f64,
    /// `true`: all grains keep one z, which they must have at the start. Grains are discs if a `density` is
    /// given.
    #[serde(default)]
    two_dimensional: bool,
    /// `true`: grains turn. Needs the contact law.
    #[serde(default)]
    spin: bool,
    /// `[[participants.settings.drag]]`: winds, and layers in which waves die.
    #[serde(default)]
    drag: Vec<DragSettings>,
    /// `[[participants.settings.force]]`: fields of force, and soft indenters.
    #[serde(default)]
    force: Vec<ForceSettings>,
    /// `[[participants.settings.bodies]]` of `type = "grains"`, `"scatter"` or `"points"`. Default:
    /// none, which is an error.
    #[serde(default)]
    bodies: Vec<toml::Table>,
}

fn default_direct_max() -> usize {
    4000
}

fn default_opening_angle() -> f64 {
    0.5
}

/// A checked section of the grain solver, laid out.
pub(crate) struct GrainSetup {
    /// The part of this rank.
    pub(crate) layout: Layout,
    pub(crate) fields: Fields,
    pub(crate) self_collision: bool,
    pub(crate) gravity: Gravity,
    /// The z of all grains [m], if they keep it.
    pub(crate) plane: Option<f64>,
    /// True if the grains turn.
    pub(crate) spin: bool,
}

/// Reads a section of the grain solver, and lays this rank's part out. Collective.
///
/// # Errors
/// Every fault found, each with its key, on all ranks.
pub(crate) fn read(section: &str, world: &World) -> Result<GrainSetup, Vec<SectionError>> {
    let section: GrainSection = parse_section(section)?;
    let ranks = &world.ranks;
    let part = Layers { part: ranks.rank(), parts: ranks.size() };
    let mut checks = Checks { seed: world.seed, flat: section.two_dimensional, part, ..Checks::default() };
    checks.not_negative("gravitational_constant", section.gravitational_constant);
    checks.not_negative("softening", section.softening);
    checks.that((0.0..=1.0).contains(&section.opening_angle), "opening_angle", || {
        "must be from 0 (exact) to 1: write e.g. opening_angle = 0.5".into()
    });
    let fields = checks.fields(section.drag, section.force);
    let mut layout = lay_out(section.bodies, Method::Grains, section.self_collision, &mut checks);
    let implicit = !layout.springs.is_empty()
        || layout.foundations.iter().any(|one| one.stiffness > 0.0 || one.damping > 0.0);
    checks.that(!implicit, "bodies", || {
        "have springs or foundations, which grains have not: write method = \"mass-spring\"".into()
    });
    common(ranks, checks.result())?;
    number(ranks, &mut layout)?;
    let plane = section.two_dimensional.then(|| plane(ranks, &layout.particles)).transpose()?;
    let gravity = Gravity {
        constant: section.gravitational_constant,
        softening: section.softening,
        direct_max: section.direct_max,
        opening_angle: section.opening_angle,
    };
    Ok(GrainSetup {
        layout,
        fields,
        self_collision: section.self_collision,
        gravity,
        plane,
        spin: section.spin,
    })
}

/// No fault if no rank has one; else this rank's faults, or that of another rank. Collective.
fn common(ranks: &Ranks, own: Result<(), Vec<SectionError>>) -> Result<(), Vec<SectionError>> {
    let first =
        own.as_ref().map_err(|faults| SolverError(format!("{}: {}", faults[0].key, faults[0].message)));
    let all = agreed(ranks, first.copied());
    own?;
    all.map_err(|SolverError(message)| vec![SectionError::new("bodies", message)])
}

/// Gives the particles of all parts the ids that they have if one rank lays them out. Collective.
fn number(ranks: &Ranks, layout: &mut Layout) -> Result<(), Vec<SectionError>> {
    let counts: Vec<u64> = layout.bodies.iter().map(|body| body.len() as u64).collect();
    let bodies = numbered(ranks, &counts);
    if let Some(k) = bodies.iter().position(|body| body.whole == 0) {
        let message = "holds no grain: write a larger shape or a smaller spacing";
        return Err(vec![SectionError::new(format!("bodies[{k}].shape"), message)]);
    }
    for (body, Numbered { first, .. }) in layout.bodies.iter().zip(bodies) {
        layout.particles.id[body.clone()].iter_mut().zip(first..).for_each(|(own, id)| *own = ParticleId(id));
    }
    Ok(())
}

/// The z of all grains [m]. Collective.
fn plane(ranks: &Ranks, particles: &Particles) -> Result<f64, Vec<SectionError>> {
    let heights = || particles.position.iter().map(|x| x.z);
    let mut ends = [
        heights().fold(f64::NEG_INFINITY, f64::max),
        heights().fold(f64::NEG_INFINITY, |top, z| top.max(-z)),
    ];
    ranks.max(&mut ends);
    let [high, low] = [ends[0], -ends[1]];
    if high == low {
        return Ok(low);
    }
    let message =
        format!("wants all grains at one z, but there is one at {low} and one at {high}: move them");
    Err(vec![SectionError::new("two_dimensional", message)])
}

#[cfg(test)]
mod tests {
    use amalgam_particles::DVec3;

    use super::*;

    const SECTION: &str = "method = 'grains'\n\
         [[bodies]]\ntype = 'points'\npositions = [[0, 0, 3], [1, 0, 3]]\nmass = 1\nradius = 0.1\n\
         [[bodies]]\ntype = 'grains'\nshape = { type = 'sphere', center = [0, 0, 0], radius = 0.5 }\n\
         spacing = 0.1\ndensity = 1000\nvelocity = [1, 2, 3]\nangular_velocity = [0, 0, 1]\n\
         [[bodies]]\ntype = 'scatter'\nshape = { type = 'sphere', center = [0, 0, 2], radius = 0.5 }\n\
         count = 20\nradius = [0.05, 0.08]\nmass = [1, 2]\n";

    fn world(ranks: &Ranks) -> World {
        World {
            participant: "grains".into(),
            domain: (DVec3::splat(-9.0), DVec3::splat(9.0)),
            gravity: DVec3::ZERO,
            seed: 3,
            obstacles: Vec::new(),
            ranks: ranks.clone(),
        }
    }

    /// The section read on each of some ranks.
    fn on_ranks<T: Send>(size: usize, of: impl Fn(&World) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let of = &of;
            let ranks = Ranks::threads(size).into_iter();
            let ranks: Vec<_> = ranks.map(|ranks| scope.spawn(move || of(&world(&ranks)))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        })
    }

    fn rows(particles: &Particles) -> Vec<String> {
        let Particles { id, position, velocity, mass, radius, immovable } = particles;
        let row = |i: usize| {
            format!("{:08} {:?}", id[i].0, (position[i], velocity[i], mass[i], radius[i], immovable[i]))
        };
        (0..id.len()).map(row).collect()
    }

    #[test]
    fn ranks_lay_out_the_grains_of_one() {
        let laid_out = |world: &World| {
            let setup = read(SECTION, world).unwrap_or_else(|faults| panic!("{faults:?}"));
            rows(&setup.layout.particles)
        };
        let alone = laid_out(&world(&Ranks::alone()));
        assert!(alone.len() > 500, "{}", alone.len());
        for size in [2, 3, 7] {
            let parts = on_ranks(size, laid_out);
            assert!(parts.iter().all(|part| part.len() < alone.len() / 2 + 100), "{size} ranks");
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(all, alone, "{size} ranks");
        }
    }

    #[test]
    fn faults_are_the_same_on_all_ranks() {
        let refused = |section: &str| {
            let of = |world: &World| read(section, world).err().expect("a fault");
            let faults = on_ranks(3, of);
            assert!(faults.iter().all(|fault| *fault == faults[0]), "{faults:?}");
            format!("{}: {}", faults[0][0].key, faults[0][0].message)
        };
        let nothing = SECTION.replace(
            "{ type = 'sphere', center = [0, 0, 0], radius = 0.5 }",
            "{ type = 'difference', from = { type = 'sphere', center = [0, 0, 0], radius = 0.5 }, subtract = [{ type = \
             'sphere', center = [0, 0, 0], radius = 0.6 }] }",
        );
        assert_eq!(
            refused(&nothing),
            "bodies[1].shape: holds no grain: write a larger shape or a smaller spacing"
        );
        let flat = SECTION.replace("method = 'grains'", "method = 'grains'\ntwo_dimensional = true");
        assert_eq!(
            refused(&flat),
            "two_dimensional: wants all grains at one z, but there is one at -0.45 and one at 3: move them"
        );
    }
}
