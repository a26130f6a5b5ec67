//! Scenes made by chance: two or three participants of any method, one thrown at the other, with spacings
//! from 1:8 to 8:1.
//!
//! A scene is a function of its number alone, so that a number names a failure for good.

use std::fmt::Write;

use amalgam_particles::random;

/// Seed of all scenes.
const SEED: u64 = 26;

/// Spacings over each other, lower participant over upper.
const RATIOS: [f64; 13] =
    [0.125, 1.0 / 6.0, 0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sph,
    Flip,
    Sheet,
    Volume,
    Bonds,
    Grains,
    Rigid,
}

const KINDS: [Kind; 7] =
    [Kind::Sph, Kind::Flip, Kind::Sheet, Kind::Volume, Kind::Bonds, Kind::Grains, Kind::Rigid];

/// A scene, and what to look at in it.
pub(crate) struct RandomScene {
    pub(crate) text: String,
    /// True if a sheet held at its edges lies between two participants: nothing may cross it.
    pub(crate) sheet: bool,
    /// Collision radius of the coarser participant, at least [m].
    pub(crate) coarse_radius: f64,
    /// True if the upper participant is the finer one.
    pub(crate) fine_on_coarse: bool,
    /// Kinds and spacings in a word.
    pub(crate) title: String,
}

struct Chance {
    scene: u64,
    drawn: u64,
}

impl Chance {
    fn unit(&mut self) -> f64 {
        self.drawn += 1;
        random::uniform_f64(&[SEED, self.scene, self.drawn])
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Evenly spread in its logarithm.
    fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + ((high - low + 1) as f64 * self.unit()) as u32
    }

    fn holds(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[((all.len() as f64 * self.unit()) as usize).min(all.len() - 1)]
    }
}

/// A participant's place: a box on the vertical axis of the domain.
struct Place {
    spacing: f64,
    /// Cells along x and y, and along z.
    cells: [u32; 2],
    bottom: f64,
    /// Downward speed [m/s].
    speed: f64,
    held: bool,
}

impl Place {
    fn width(&self) -> f64 {
        f64::from(self.cells[0]) * self.spacing
    }

    fn height(&self) -> f64 {
        f64::from(self.cells[1]) * self.spacing
    }

    fn corners(&self) -> String {
        let (half, bottom, top) = (0.5 * self.width(), self.bottom, self.bottom + self.height());
        format!("{{ type = \"box\", min = [{0}, {0}, {bottom}], max = [{half}, {half}, {top}] }}", -half)
    }
}

/// The scene of this number.
pub(crate) fn random_scene(number: u64) -> RandomScene {
    let mut chance = Chance { scene: number, drawn: 0 };
    let law = chance.holds(0.4);
    let kind = |chance: &mut Chance| loop {
        // Merging refuses rigid bodies, which would teach nothing.
        let kind = chance.of(&KINDS);
        if kind != Kind::Rigid || law {
            break kind;
        }
    };
    let kinds = [kind(&mut chance), kind(&mut chance)];
    let ratio = chance.of(&RATIOS);
    let length = chance.magnitude(0.01, 3.0);
    let (coarse, fine) = (0.1 * length, 0.1 * length * ratio.min(1.0 / ratio));
    let spacings = if ratio > 1.0 { [coarse, fine] } else { [fine, coarse] };
    let gravity = if chance.holds(0.8) { 9.81 } else { 0.0 };
    let speed = chance.magnitude(0.1, 10.0) * (9.81 * length).sqrt() * 0.3;
    let cells = |chance: &mut Chance, spacing: f64| match spacing / fine > 1.2 {
        true => [chance.count(2, 4), chance.count(2, 3)],
        false => [chance.count(4, 10), chance.count(3, 7)],
    };
    let floor = if kinds[0] == Kind::Sph || kinds[0] == Kind::Flip { 0.0 } else { 4.0 * coarse };
    let lower = Place {
        spacing: spacings[0],
        cells: cells(&mut chance, spacings[0]),
        bottom: floor,
        speed: 0.0,
        held: chance.holds(0.6),
    };
    let lower_height = if kinds[0] == Kind::Sheet { 0.0 } else { lower.height() };
    let gap = 0.75 * (spacings[0] + spacings[1]) + chance.between(0.0, 1.0) * coarse;
    let upper = Place {
        spacing: spacings[1],
        cells: cells(&mut chance, spacings[1]),
        bottom: floor + lower_height + gap,
        speed,
        held: false,
    };
    // A whole number of FLIP's cells, of two spacings of either.
    let tile = 4.0 * coarse;
    let half_tiles = (0.55 * lower.width().max(upper.width()) / tile).ceil();
    let half = half_tiles * tile;
    let tall = ((upper.bottom + upper.height() + 2.0 * coarse) / tile).ceil() * tile;
    let fastest = (speed * speed + 2.0 * gravity * tall).sqrt();
    let is_fluid = |kind: Kind| matches!(kind, Kind::Sph | Kind::Flip);
    let meeting = 2.0 * (gap + lower_height.min(upper.height())) / speed.max(0.3 * fastest);
    let longest =
        if kinds.iter().any(|&kind| is_fluid(kind)) { 400.0 * 0.04 * fine / fastest } else { f64::INFINITY };
    let duration = meeting.min(longest.max(0.2 * meeting));
    let mut text = format!(
        "[scene]\nname = \"random-{number}\"\nseed = {number}\n\n[domain]\nmin = [{0}, {0}, 0.0]\nmax = [{half}, {half}, {tall}]\n\
         gravity = [0.0, 0.0, {1}]\n\n[time]\nduration = {duration}\nframe_interval = {2}\n\n[output]\nvtk = false\n",
        -half,
        -gravity,
        0.25 * duration
    );
    if law {
        let (friction, restitution) =
            (chance.between(0.0, 1.0), if chance.holds(0.5) { 0.0 } else { chance.unit() });
        let _ = write!(
            text,
            "\n[coupling]\nmethod = \"contact-law\"\n\n[[coupling.contact]]\nbetween = [\"lower\", \"upper\"]\nfriction = \
             {friction}\nrestitution = {restitution}\n"
        );
        if chance.holds(0.5) {
            text += "\n[[domain.obstacles]]\nname = \"ground\"\nshape = { type = \"plane\", point = [0.0, 0.0, 0.0], normal = [0.0, 0.0, \
                     1.0] }\n";
        }
    } else {
        text += "\n[coupling]\nmethod = \"merge-split\"\n";
        if chance.holds(0.3) {
            text += "alpha = 0.0\n";
        }
    }
    text += "\n[[probes]]\nname = \"overlap\"\nquantity = \"overlap\"\n";
    let sheet = kinds[0] == Kind::Sheet;
    if sheet {
        text += "\n[[probes]]\nname = \"crossings\"\nquantity = \"crossings\"\nsheet = \"lower\"\nof = \"upper\"\n";
    }
    let scale = chance.magnitude(0.1, 10.0);
    participant(&mut text, "lower", kinds[0], &lower, &mut chance, (1000.0, length));
    participant(&mut text, "upper", kinds[1], &upper, &mut chance, (1000.0 * scale, length));
    let title = format!(
        "{} {:?} under {:?}, spacings {:.3}:1",
        if law { "law" } else { "merge" },
        kinds[0],
        kinds[1],
        spacings[0] / spacings[1]
    );
    RandomScene {
        text,
        sheet: sheet && lower.held,
        coarse_radius: 0.5 * coarse,
        fine_on_coarse: ratio > 1.0,
        title,
    }
}

/// Appends a participant of a density [kg/m^3] in a scene of a length [m].
fn participant(
    text: &mut String,
    name: &str,
    kind: Kind,
    place: &Place,
    chance: &mut Chance,
    (density, length): (f64, f64),
) {
    let Place { spacing, speed, .. } = *place;
    let (shape, velocity) = (place.corners(), format!("velocity = [0.0, 0.0, {}]", -speed));
    let solver = if matches!(kind, Kind::Sph | Kind::Flip) { "fluid" } else { "solid" };
    let _ = write!(
        text,
        "\n[[participants]]\nname = \"{name}\"\nsolver = \"{solver}\"\n\n[participants.settings]\n"
    );
    // From a body that sags by a fifth of itself to one that hardly gives way.
    let young = density * 9.81 * length * chance.magnitude(5.0, 1e4) + density * speed * speed;
    let damping = chance.of(&[0.0, 0.05, 0.3]);
    let fluid = || {
        let (opening, closing) =
            shape.rsplit_once('}').map_or((shape.as_str(), ""), |halves| (halves.0, "}"));
        format!("spacing = {spacing}\nrest_density = {density}\nshapes = [{opening}, {velocity} {closing}]\n")
    };
    let integrator = chance.of(&["implicit-euler", "implicit-euler", "hht-alpha"]);
    let solid = format!("spacing = {spacing}\ndensity = {density}\n");
    *text += &match kind {
        Kind::Sph => format!("method = \"sph\"\n{}", fluid()),
        Kind::Flip => format!("method = \"flip\"\n{}", fluid()),
        Kind::Sheet => {
            let (half, z) = (0.5 * place.width(), place.bottom);
            let (cells, thickness) = (place.cells[0], 0.2 * spacing);
            let held = if place.held { "pinned = \"edges\"\n" } else { "" };
            format!(
                "method = \"mass-spring\"\nintegrator = \"{integrator}\"\n\n[[participants.settings.bodies]]\ntype = \"sheet\"\ncorner = [{0}, {0}, {z}]\nedge_u = [{1}, \
                 0.0, 0.0]\nedge_v = [0.0, {1}, 0.0]\nspacing = {spacing}\nyoung_modulus = {young}\nthickness = {thickness}\ndensity = \
                 {density}\ndamping_ratio = {damping}\n{velocity}\n{held}",
                -half,
                f64::from(cells) * spacing
            )
        }
        Kind::Volume => {
            let held = if place.held { "pinned = \"all\"\n" } else { "" };
            format!(
                "method = \"mass-spring\"\nintegrator = \"{integrator}\"\n\n[[participants.settings.bodies]]\ntype = \"volume\"\nshape = {shape}\n{solid}young_modulus = \
                 {young}\ndamping_ratio = {damping}\n{velocity}\n{held}"
            )
        }
        Kind::Bonds => {
            let low = place.bottom + 0.6 * spacing;
            let held = match place.held {
                true => format!("held = [{{ min = [-99.0, -99.0, -99.0], max = [99.0, 99.0, {low}] }}]\n"),
                false => String::new(),
            };
            let toughness = match chance.holds(0.5) {
                true => format!("critical_stretch = {}\n", chance.magnitude(1e-3, 0.1)),
                false => String::new(),
            };
            format!(
                "method = \"peridynamics\"\nintegrator = \"{integrator}\"\n\n[[participants.settings.bodies]]\ntype = \"peridynamic\"\nshape = {shape}\n{solid}young_modulus \
                 = {young}\n{velocity}\n{held}{toughness}"
            )
        }
        Kind::Grains => format!(
            "method = \"grains\"\n\n[[participants.settings.bodies]]\ntype = \"grains\"\nshape = {shape}\n{solid}{velocity}\n"
        ),
        Kind::Rigid => {
            let held = if place.held { "pinned = \"all\"\n" } else { "" };
            let spin = speed / place.width();
            format!(
                "method = \"rigid\"\n\n[[participants.settings.bodies]]\ntype = \"rigid\"\nshape = {shape}\n{solid}{}\n{held}",
                if place.held {
                    String::new()
                } else {
                    format!("{velocity}\nangular_velocity = [{spin}, 0.0, 0.0]")
                }
            )
        }
    };
}
