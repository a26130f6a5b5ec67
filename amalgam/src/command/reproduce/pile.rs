//! Measures of a pile of discs over time, from the files of a run: one way for all runs.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::path::Path;

use amalgam_coordinator::Quantity;
use amalgam_coordinator::summary::Extremes;
use amalgam_frames::{CsvTable, Frame, FramesError, RADIUS};
use amalgam_particles::{DVec3, PairFinder, Spheres};

use super::rivals::MASS;
use crate::{pages::html::table, scene::Scene};

/// Name of the table, and of its entry in the summary.
pub const NAME: &str = "pile";

/// Columns of the table after the time.
pub const COLUMNS: [&str; 10] = [
    "discs",
    "overlap_mean [smaller radius]",
    "overlap_max [smaller radius]",
    "radius_90 [m]",
    "packing",
    "farthest [m]",
    "jitter [m/s]",
    "angular_momentum_change",
    "angular_momentum [first]",
    "turn_not_reported [rad]",
];

/// The part of the mass that counts as the pile.
const PILE: f64 = 0.9;

/// Measures the discs of the scene's first participant in every frame. `masses` are those of the start, by id
/// [kg]. The table goes beside those of the probes, and the result is the table's entry in a summary.
///
/// # Errors
/// A file that is missing or wrong.
pub(super) fn measure(
    folder: &Path,
    scene: &Scene,
    masses: &BTreeMap<u64, f64>,
) -> Result<BTreeMap<String, Extremes>, FramesError> {
    let header = [&["time [s]"][..], &COLUMNS].concat();
    let mut csv = CsvTable::create(folder.join(format!("probes/{NAME}.csv")), &header)?;
    let mut turning = Turning::new(angular_momentum(folder, scene));
    let mut extremes: BTreeMap<String, Extremes> = BTreeMap::new();
    for number in 0..=scene.time.frames() {
        let file = folder.join(format!("frames/{}_{number:06}.vtu", scene.participants[0].name));
        // The run ended early, or nothing moved since the frame before.
        if !file.exists() {
            continue;
        }
        let pile = Pile::new(Frame::read(file)?, masses);
        let [mean, max] = pile.overlap();
        let radius = pile.radius();
        let farthest = pile.arms().map(|(x, _)| x.length()).fold(0.0, f64::max);
        let (time, discs, packing) = (pile.frame.time, pile.mass.len() as f64, pile.packing(radius));
        let jitter = pile.jitter(radius);
        let [change, relative, not_reported] = turning.add(pile);
        let values = [discs, mean, max, radius, packing, farthest, jitter, change, relative, not_reported];
        csv.append(&[&[time][..], &values].concat())?;
        for (name, value) in COLUMNS.iter().zip(values) {
            let first = Extremes { last: value, min: value, max: value };
            let one = extremes.entry((*name).to_string()).or_insert(first);
            *one = Extremes { last: value, min: one.min.min(value), max: one.max.max(value) };
        }
    }
    Ok(extremes)
}

/// Time [s] and angular momentum about z [kg m^2/s] after each step, spins of discs included.
fn angular_momentum(folder: &Path, scene: &Scene) -> Vec<(f64, f64)> {
    let is_it = |quantity: &Quantity| matches!(quantity, Quantity::AngularMomentum { .. });
    let probe = scene.probes.iter().find(|probe| is_it(&probe.quantity));
    let columns = probe.and_then(|probe| table(&folder.join(format!("probes/{}.csv", probe.name))).ok());
    columns.and_then(|columns| columns.into_iter().nth(2)).map(|z| z.points).unwrap_or_default()
}

/// The discs of a frame, about their centre of mass.
struct Pile {
    frame: Frame,
    mass: Vec<f64>,
    radius: Vec<f64>,
    middle: DVec3,
    /// Velocity of the middle [m/s].
    drift: DVec3,
}

impl Pile {
    fn new(frame: Frame, masses: &BTreeMap<u64, f64>) -> Self {
        let field = |wanted: &str| {
            let found = frame.scalars.iter().find(|(name, _)| name == wanted);
            found.map(|(_, values)| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>())
        };
        let at_start = || frame.ids.iter().map(|id| masses.get(id).copied().unwrap_or(f64::NAN)).collect();
        let mass = field(MASS).unwrap_or_else(at_start);
        let radius = field(RADIUS).unwrap_or_else(|| vec![f64::NAN; mass.len()]);
        let total: f64 = mass.iter().sum();
        let middle = frame.positions.iter().zip(&mass).map(|(x, m)| *x * *m).sum::<DVec3>() / total;
        let momentum: DVec3 = frame.velocities.iter().zip(&mass).map(|(v, m)| velocity(*v) * *m).sum();
        Self { mass, radius, middle, drift: momentum / total, frame }
    }

    /// Positions [m] and velocities [m/s] about the middle.
    fn arms(&self) -> impl Iterator<Item = (DVec3, DVec3)> {
        let columns = self.frame.positions.iter().zip(&self.frame.velocities);
        columns.map(|(x, v)| (*x - self.middle, velocity(*v) - self.drift))
    }

    /// Mean and largest depth of the overlaps, over the smaller radius; 0 if there is none.
    fn overlap(&self) -> [f64; 2] {
        let (position, radius) = (&self.frame.positions, &self.radius);
        let mut finder = PairFinder::new();
        let pairs = finder.find(Spheres { position, radius, class: None }, |_, _| true);
        let depths = pairs.iter().map(|&(i, j)| {
            let (i, j) = (i as usize, j as usize);
            let depth = radius[i] + radius[j] - position[i].distance(position[j]);
            depth / radius[i].min(radius[j])
        });
        let (sum, max) = depths.fold((0.0, 0.0), |(sum, max), depth| (sum + depth, f64::max(max, depth)));
        [sum / pairs.len().max(1) as f64, max]
    }

    /// Distance from the middle within which the part `PILE` of the mass has its centres [m].
    fn radius(&self) -> f64 {
        let mut far: Vec<(f64, f64)> =
            self.arms().zip(&self.mass).map(|((x, _), &mass)| (x.length(), mass)).collect();
        far.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted = PILE * self.mass.iter().sum::<f64>();
        let mut within = 0.0;
        let inside = |&(_, mass): &(f64, f64)| {
            within += mass;
            within >= wanted
        };
        far.iter().copied().find(inside).map_or(f64::NAN, |(distance, _)| distance)
    }

    /// Area of the discs within this distance from the middle, over that of the circle. A disc that reaches
    /// out counts by its part inside. Overlaps count twice, so that more than 0.9069, the densest packing of
    /// equal discs, says that discs have sunk into each other, and less that there are holes.
    fn packing(&self, outer: f64) -> f64 {
        let areas = self.arms().zip(&self.radius).map(|((x, _), &r)| common_area(outer, r, x.length()));
        areas.sum::<f64>() / (PI * outer * outer)
    }

    /// Sum of m |x| |v| [kg m^2/s]: the largest angular momentum that these speeds can have.
    fn largest_angular_momentum(&self) -> f64 {
        self.arms().zip(&self.mass).map(|((x, v), m)| m * x.length() * v.length()).sum()
    }

    /// Rate of the rotation that fits the velocities best [rad/s]: L/I.
    fn rate(&self) -> f64 {
        let arms = self.arms().zip(&self.mass);
        let (turn, inertia) = arms.fold((0.0, 0.0), |(turn, inertia), ((x, v), m)| {
            (turn + m * x.cross(v).z, inertia + m * x.length_squared())
        });
        turn / inertia
    }

    /// Root of the mean square velocity within this distance of the middle, less the rotation of all [m/s].
    fn jitter(&self, outer: f64) -> f64 {
        let turn = DVec3::Z * self.rate();
        let inside = self.arms().zip(&self.mass).filter(|((x, _), _)| x.length() <= outer);
        let (energy, mass) = inside.fold((0.0, 0.0), |(energy, mass), ((x, v), m)| {
            (energy + m * (v - turn.cross(x)).length_squared(), mass + m)
        });
        (energy / mass).sqrt()
    }

    /// Angle of the rotation that fits best the way from an earlier frame [rad]. Discs that are not in both
    /// are left out.
    fn turn(&self, before: &Self) -> f64 {
        let earlier: BTreeMap<u64, DVec3> =
            before.frame.ids.iter().copied().zip(before.arms().map(|(x, _)| x)).collect();
        let arms = self.frame.ids.iter().zip(self.arms().zip(&self.mass));
        let both = arms.filter_map(|(id, ((y, _), m))| Some((*earlier.get(id)?, y, m)));
        let (sin, cos) =
            both.fold((0.0, 0.0), |(sin, cos), (x, y, m)| (sin + m * x.cross(y).z, cos + m * x.dot(y)));
        sin.atan2(cos)
    }
}

fn velocity(v: [f32; 3]) -> DVec3 {
    DVec3::from(v.map(f64::from))
}

/// Area that two circles of radii `a` and `b` at the distance `d` have in common.
fn common_area(a: f64, b: f64, d: f64) -> f64 {
    if d >= a + b {
        return 0.0;
    }
    let smaller = a.min(b);
    if d <= (a - b).abs() {
        return PI * smaller * smaller;
    }
    // Each circle gives a segment r^2 (alpha - sin alpha cos alpha), where alpha is half of the angle at
    // its centre and cos alpha = (d^2 + r^2 - s^2)/(2 d r) with the other radius s.
    let segment = |r: f64, s: f64| {
        let cos = ((d * d + r * r - s * s) / (2.0 * d * r)).clamp(-1.0, 1.0);
        let alpha = cos.acos();
        r * r * (alpha - alpha.sin() * cos)
    };
    segment(a, b) + segment(b, a)
}

/// Angular momentum and rotation from frame to frame.
struct Turning {
    /// Time [s] and angular momentum [kg m^2/s] after each step.
    steps: Vec<(f64, f64)>,
    /// Largest sum of m |x| |v| so far [kg m^2/s].
    largest: f64,
    before: Option<Pile>,
    /// Angle turned less the integral of the reported rate [rad].
    not_reported: f64,
}

impl Turning {
    fn new(steps: Vec<(f64, f64)>) -> Self {
        Self { steps, largest: 0.0, before: None, not_reported: 0.0 }
    }

    /// The change of the angular momentum since the first step over the largest sum of m |x| |v| so far, the
    /// angular momentum over that of the first step, and the angle turned that no velocity reported [rad].
    fn add(&mut self, pile: Pile) -> [f64; 3] {
        self.largest = self.largest.max(pile.largest_angular_momentum());
        if let Some(before) = &self.before {
            // The trapezoidal rule for the integral of the rate.
            let reported = 0.5 * (before.rate() + pile.rate()) * (pile.frame.time - before.frame.time);
            self.not_reported += pile.turn(before) - reported;
        }
        let first = self.steps.first().map_or(f64::NAN, |step| step.1);
        let is_over = |step: &&(f64, f64)| step.0 <= pile.frame.time * (1.0 + 1e-9);
        let now = self.steps.iter().take_while(is_over).last().map_or(first, |step| step.1);
        self.before = Some(pile);
        [(now - first).abs() / self.largest.max(f64::MIN_POSITIVE), now / first, self.not_reported]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of discs of radius 0.5 at 2 m, turned by `angle`, that turn at `rate` and all drift along x.
    fn ring(time: f64, angle: f64, rate: f64) -> Pile {
        let arm = |k: u32| DVec3::new(2.0, 0.0, 0.0).rotate_z(f64::from(k) * PI / 3.0 + angle);
        let positions: Vec<DVec3> = (0..6).map(|k| arm(k) + DVec3::X * time).collect();
        let velocity = |k: u32| (DVec3::X + DVec3::Z.cross(arm(k)) * rate).as_vec3().to_array();
        let frame = Frame {
            time,
            positions,
            velocities: (0..6).map(velocity).collect(),
            ids: (0..6).collect(),
            scalars: vec![(RADIUS.to_string(), vec![0.5; 6])],
            ..Frame::default()
        };
        Pile::new(frame, &(0..6).map(|id| (id, 1.0)).collect())
    }

    #[test]
    fn circles_have_the_area_of_their_lens_in_common() {
        assert_eq!(common_area(1.0, 2.0, 3.0), 0.0);
        assert_eq!(common_area(5.0, 1.0, 3.9), PI);
        // Two unit circles through each other's centre.
        let lens = 2.0 * PI / 3.0 - 0.75f64.sqrt();
        assert!((common_area(1.0, 1.0, 1.0) - lens).abs() < 1e-14);
    }

    #[test]
    fn a_turn_that_velocities_report_is_none_that_they_do_not() {
        let mut turning = Turning::new(vec![(0.1, 5.0), (1.0, 6.0), (2.0, 7.0)]);
        let first = ring(0.0, 0.0, 0.3);
        assert!(first.jitter(3.0) < 1e-6 && (first.rate() - 0.3).abs() < 1e-6);
        turning.add(first);
        let [change, relative, not_reported] = turning.add(ring(1.0, 0.3, 0.3));
        // Six arms of 2 m at 0.6 m/s.
        assert!((change - 1.0 / 7.2).abs() < 1e-6 && relative == 1.2, "{change} {relative}");
        assert!(not_reported.abs() < 1e-6, "{not_reported}");
        let [_, _, not_reported] = turning.add(ring(2.0, 0.7, 0.3));
        assert!((not_reported - 0.1).abs() < 1e-6, "{not_reported}");
    }
}
