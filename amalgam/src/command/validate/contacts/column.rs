//! Columns of grains that collapse, and how far they spread.

use amalgam_coordinator::ParticipantFrame;
use glam::DVec3;

use super::{set, vector, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const DISCS_SCENE: &str = include_str!("../../../../../validation/column-discs/scene.toml");
const SPHERES_SCENE: &str = include_str!("../../../../../validation/column-spheres/scene.toml");

pub(in crate::command::validate) const DISCS: Case = Case {
    name: "column-discs",
    about: "run-out of columns of discs, a = 0.5 to 4: contact dynamics of Staron and Hinch, experiments in a channel",
    quick: false,
    compute: discs,
};

pub(in crate::command::validate) const CHANNEL: Case = Case {
    name: "column-channel",
    about: "run-out of columns of spheres in a channel, a = 0.5 to 4: experiments of Lube and others",
    quick: false,
    compute: channels,
};

pub(in crate::command::validate) const SPHERES: Case = Case {
    name: "column-spheres",
    about: "run-out of round columns of spheres, a = 0.5 to 4: experiments of Lube and others",
    quick: false,
    compute: spheres,
};

/// The coefficient of rolling resistance for all columns of spheres.
const ROLLING: f64 = 0.1;
/// The coefficient for columns of discs that stand for grains in a channel.
const ROLLING_DISCS: f64 = 0.5;
/// Width of the channel in diameters, and the friction of its sides, which is that of grains.
const CHANNEL_WIDTH: f64 = 10.0;
const CHANNEL_FRICTION: f64 = 0.5;
/// Part of the room that scattered grains and grains at rest fill.
const SCATTERED: [f64; 2] = [0.35, 0.2];
const AT_REST: [f64; 2] = [0.82, 0.58];
/// Mean of r^2 and r^3 for radii of 0.4 to 0.6.
const MEAN_SQUARE: f64 = 0.253_333_333;
const MEAN_CUBE: f64 = 0.13;

/// Shape of a column.
#[derive(Clone, Copy, PartialEq)]
enum ColumnShape {
    /// Half of a plane column of discs, against a wall.
    Discs,
    /// Half of a column of spheres in a channel, against a wall.
    Channel,
    /// A quarter of a round column of spheres.
    Round,
}

impl ColumnShape {
    /// Starts its scene with settings.
    fn start(self, settings: &[String]) -> Result<Experiment, CaseError> {
        match self {
            Self::Discs => Experiment::start(DISCS.name, DISCS_SCENE, settings),
            Self::Channel | Self::Round => Experiment::start(SPHERES.name, SPHERES_SCENE, settings),
        }
    }

    /// Place of the walls that stand in the way of a column of this width [diameters]: obstacle and point.
    fn gates(self, width: f64) -> Vec<(usize, DVec3)> {
        let front = (2, DVec3::X * width);
        match self {
            Self::Discs => vec![front],
            Self::Channel => vec![front, (4, DVec3::Y * CHANNEL_WIDTH)],
            Self::Round => vec![front, (4, DVec3::Y * width)],
        }
    }

    /// Gates that are taken away, among [`Self::gates`].
    fn opened(self) -> usize {
        if self == Self::Round { 2 } else { 1 }
    }
}

/// A column of grains.
struct GrainColumn {
    shape: ColumnShape,
    /// Half of the width, or the radius, in diameters.
    width: f64,
    aspect: f64,
    rolling: f64,
}

/// The deposit of a collapsed column.
struct Deposit {
    /// Height over width at the start.
    aspect: f64,
    /// (L - L0)/L0.
    run_out: f64,
    /// Height of the highest grain over the width.
    height: f64,
    /// Largest speed in the end, in roots of gravity times diameter.
    speed: f64,
    grains: usize,
    unconverged: u32,
    iterations: f64,
    frame: ParticipantFrame,
}

impl GrainColumn {
    /// Grains and floor resist rolling, and so do the sides of a channel. Planes of symmetry have no friction.
    fn settings(&self) -> Vec<String> {
        let sides = if self.shape == ColumnShape::Channel { 2..4 } else { 0..0 };
        let rolling = (0..2).chain(sides.clone()).map(|k| (k, "rolling", self.rolling));
        let settings = rolling.chain(sides.map(|k| (k, "friction", CHANNEL_FRICTION)));
        settings
            .map(|(k, key, value)| set(&format!("coupling.contact[{k}].{key}"), format!("{value:?}")))
            .collect()
    }

    /// Settings that place the walls before the column; those that are `open` far away.
    fn gates(&self, open: usize) -> impl Iterator<Item = String> {
        let far = DVec3::new(900.0, 900.0, 0.0);
        let gates = self.shape.gates(self.width).into_iter().enumerate();
        gates.map(move |(k, (obstacle, point))| {
            let point = vector(if k < open { far } else { point });
            set(&format!("domain.obstacles[{obstacle}].shape.point"), point)
        })
    }

    /// Grains at rest between the walls.
    fn fill(&self) -> Result<ParticipantFrame, CaseError> {
        let (wide, tall) = (self.width, self.width * self.aspect);
        let (depth, d) = match self.shape {
            ColumnShape::Discs => (1.0, 0),
            ColumnShape::Channel => (CHANNEL_WIDTH, 1),
            ColumnShape::Round => (wide, 1),
        };
        let grain = [MEAN_SQUARE, MEAN_CUBE * 4.0 / 3.0][d] * std::f64::consts::PI;
        let count = (wide * depth * tall * AT_REST[d] / grain) as usize;
        let top = tall * AT_REST[d] / SCATTERED[d] + 2.0;
        let (low, high) = match self.shape {
            ColumnShape::Discs => (DVec3::new(0.6, 0.6, -0.5), DVec3::new(wide - 0.6, top, 0.5)),
            _ => (DVec3::splat(0.6), DVec3::new(wide - 0.6, depth - 0.6, top)),
        };
        let body = "participants[0].settings.bodies[0]";
        let mut settings = self.settings();
        settings.extend(self.gates(0));
        settings.push(set(
            &format!("{body}.shape"),
            format!("{{ type = \"box\", min = {}, max = {} }}", vector(low), vector(high)),
        ));
        settings.push(set(&format!("{body}.count"), count));
        settings.push(set("time.duration", format!("{:?}", 3.0 * (2.0 * top).sqrt() + 10.0)));
        Ok(self.shape.start(&settings)?.end()?.swap_remove(0))
    }

    fn is_round(&self) -> bool {
        self.shape == ColumnShape::Round
    }

    fn up(&self, x: DVec3) -> f64 {
        if self.shape == ColumnShape::Discs { x.y } else { x.z }
    }

    fn along(&self, x: DVec3) -> f64 {
        if self.is_round() { x.x.hypot(x.y) } else { x.x }
    }

    fn collapse(&self) -> Result<Deposit, CaseError> {
        let full = self.fill()?;
        let kept = |(x, r): &(&DVec3, &f64)| !self.is_round() || self.along(**x) + **r <= self.width;
        let (position, radius): (Vec<DVec3>, Vec<f64>) =
            full.positions.iter().zip(&full.radius).filter(kept).map(|(x, r)| (*x, *r)).unzip();
        let mass = |r: &f64| if self.shape == ColumnShape::Discs { r * r } else { r * r * r };
        let mass: Vec<f64> = radius.iter().map(mass).collect();
        // Grains fill the column evenly, so that their centre of mass is at half of its height.
        let weighed = position.iter().zip(&mass).map(|(x, m)| self.up(*x) * m).sum::<f64>();
        let tall = 2.0 * weighed / mass.iter().sum::<f64>();
        let mut settings = self.settings();
        settings.extend(self.gates(self.shape.opened()));
        let points = format!(
            "[{{ type = \"points\", positions = {}, mass = {mass:?}, radius = {radius:?} }}]",
            vectors(&position)
        );
        settings.push(set("participants[0].settings.bodies", points));
        settings.push(set("time.duration", format!("{:?}", 8.0 * tall.sqrt() + 10.0)));
        let (mut unconverged, mut iterations, mut steps) = (0, 0, 0);
        let experiment = self.shape.start(&settings)?;
        let frame = experiment
            .run(|record, _| {
                unconverged += u32::from(record.unconverged);
                iterations += record.iterations;
                steps += 1;
                Ok(())
            })?
            .swap_remove(0);
        let (front, height) = self.extent(&frame);
        Ok(Deposit {
            aspect: tall / self.width,
            run_out: front / self.width - 1.0,
            height: height / self.width,
            speed: frame.velocities.iter().map(|v| v.length()).fold(0.0, f64::max),
            grains: frame.positions.len(),
            unconverged,
            iterations: iterations as f64 / f64::from(steps),
            frame,
        })
    }

    /// Front and height of the deposit: the largest set of grains that touch, as in [StaronHinch2005]. Grains
    /// that rolled away alone do not count. The front of a round column is the mean over sectors of 15 degrees.
    fn extent(&self, frame: &ParticipantFrame) -> (f64, f64) {
        let (position, radius) = (&frame.positions, &frame.radius);
        let mut order: Vec<usize> = (0..position.len()).collect();
        order.sort_by(|&i, &j| position[i].x.total_cmp(&position[j].x));
        let place: Vec<f64> = order.iter().map(|&i| position[i].x).collect();
        let (mut seen, mut parts) = (vec![false; position.len()], Vec::new());
        for start in 0..position.len() {
            let (mut part, mut open) = (Vec::new(), vec![start]);
            while let Some(i) = open.pop() {
                if std::mem::replace(&mut seen[i], true) {
                    continue;
                }
                part.push(i);
                let near = place.partition_point(|x| *x < position[i].x - 1.3)
                    ..place.partition_point(|x| *x <= position[i].x + 1.3);
                let touches = |j: &usize| {
                    !seen[*j] && position[i].distance(position[*j]) - radius[i] - radius[*j] < 0.05
                };
                open.extend(order[near].iter().copied().filter(touches));
            }
            if part.len() > parts.len() {
                parts = part;
            }
        }
        let (mut fronts, mut height) = (vec![0.0f64; if self.is_round() { 6 } else { 1 }], 0.0f64);
        for i in parts {
            let sector = if self.is_round() {
                (position[i].y.atan2(position[i].x).to_degrees() / 15.0) as usize
            } else {
                0
            };
            let sector = sector.min(fronts.len() - 1);
            fronts[sector] = fronts[sector].max(self.along(position[i]) + radius[i]);
            height = height.max(self.up(position[i]) + radius[i]);
        }
        (fronts.iter().sum::<f64>() / fronts.len() as f64, height)
    }
}

/// Run-out (L - L0)/L0 of discs without resistance to rolling [StaronHinch2005], of grains in a channel
/// ([Lube2005]; [Lajeunesse2005] has the same with a = 3 as the limit) and of round columns [Lube2004].
fn staron(a: f64) -> f64 {
    if a < 2.0 { 2.5 * a } else { 3.25 * a.powf(0.7) }
}

fn channel(a: f64) -> f64 {
    if a < 2.3 { 1.2 * a } else { 1.9 * a.powf(2.0 / 3.0) }
}

fn round(a: f64) -> f64 {
    if a < 1.7 { 1.24 * a } else { 1.6 * a.sqrt() }
}

type Published = fn(f64) -> f64;

fn compare(
    columns: impl IntoIterator<Item = (GrainColumn, &'static str, Published)>,
) -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut picture) = (Vec::new(), Sketch::default());
    let mut below = 0.0;
    for (column, whose, published) in columns {
        let deposit = column.collapse()?;
        let Deposit { aspect, run_out, height, speed, grains, unconverged, iterations, .. } = &deposit;
        let name = format!("{whose}, a = {aspect:.2}, {grains} grains");
        checks.push(Check::relative(format!("{name}: (L - L0)/L0"), published(*aspect), *run_out, 0.2));
        tracing::debug!(
            "{name}: height {height:.3}, speed {speed:.1e}, unconverged {unconverged}, iterations {iterations:.1}"
        );
        below += 1.2 * deposit.height * column.width;
        let shift = DVec3::Z * -below;
        let front = column.width * (1.0 + published(*aspect));
        let upright = |x: &DVec3| DVec3::new(column.along(*x), 0.0, column.up(*x)) + shift;
        let mark = (0..10).map(|k| DVec3::new(front, 0.0, 0.5 * f64::from(k)) + shift);
        picture =
            picture.balls(deposit.frame.positions.iter().map(upright), &deposit.frame.radius).reference(mark);
    }
    Ok(CaseOutcome { checks, picture })
}

const ASPECTS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

fn discs() -> Result<CaseOutcome, CaseError> {
    let column = |aspect: f64, rolling: f64| {
        // As many discs in all columns, but for the tallest: a narrow column spreads less far.
        let width = (1800.0 / aspect).sqrt().max(30.0);
        GrainColumn { shape: ColumnShape::Discs, width, aspect, rolling }
    };
    let free = ASPECTS.map(|aspect| (column(aspect, 0.0), "Staron", staron as Published));
    let resisting = ASPECTS.map(|aspect| (column(aspect, ROLLING_DISCS), "channel", channel as Published));
    compare(free.into_iter().chain(resisting))
}

fn channels() -> Result<CaseOutcome, CaseError> {
    compare(ASPECTS.map(|aspect| {
        // As many spheres in all columns, as if a channel of one width were filled with one heap of grains.
        let width = (900.0 / aspect).sqrt();
        let column = GrainColumn { shape: ColumnShape::Channel, width, aspect, rolling: ROLLING };
        (column, "Lube", channel as Published)
    }))
}

fn spheres() -> Result<CaseOutcome, CaseError> {
    compare(ASPECTS.map(|aspect| {
        let width = (7200.0 / aspect).cbrt();
        let column = GrainColumn { shape: ColumnShape::Round, width, aspect, rolling: ROLLING };
        (column, "Lube", round as Published)
    }))
}
