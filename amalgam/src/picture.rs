//! Pictures of frames.

use std::{borrow::Cow, collections::BTreeMap, path::Path};

use amalgam_frames::{
    Camera, Colour as Paint, ColourMap, FramesError, Layer, Radius, Scene as Drawing, creased,
};
use amalgam_particles::polygon;
use glam::DVec3;

use crate::scene::{ClippingPlane, Colour, FieldColour, PictureSettings, Ramp, Scene, SolverKind};
use amalgam_coordinator::{Faces, FrameField, ParticipantFrame};
use amalgam_surfaces::Surface;

/// Colour of obstacles.
pub(crate) const STONE: [f32; 3] = [0.76, 0.75, 0.72];

/// Colour of a fluid that is drawn by its surface: light that came through much water.
pub(crate) const WATER: [u8; 3] = [0x3a, 0xa6, 0xc4];

/// Margin around the visible box, over the largest side of the box.
const MARGIN: f64 = 0.08;

/// One in so many particles may be out of the picture, at each end of each axis.
const STRAY: usize = 200;

/// Plain colours of participants that the scene gives none, in the order of the scene.
const WARM: [[u8; 3]; 5] =
    [[0xd9, 0x6a, 0x35], [0xc9, 0x3f, 0x4e], [0xd9, 0xa4, 0x41], [0x9c, 0x5a, 0x7d], [0x8a, 0x8f, 0x3c]];

/// The part of a participant that is drawn.
struct Drawn<'a> {
    positions: Cow<'a, [DVec3]>,
    radius: Cow<'a, [f64]>,
    triangles: Cow<'a, [[u32; 3]]>,
    values: Option<Vec<f32>>,
    shape: Shape,
}

/// Meaning of positions and triangles.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Balls,
    Surface,
    /// A closed surface of a fluid whose colour is plain.
    Water,
}

/// Draws frames of one scene.
pub(crate) struct Painter {
    settings: PictureSettings,
    domain: (DVec3, DVec3),
    /// Against gravity.
    up: DVec3,
    /// The corners of a box around the places where particles have been in pictures.
    framed: Option<(DVec3, DVec3)>,
    /// Name and colour of each participant.
    colours: Vec<(String, Colour)>,
    /// Names of participants that are fluids.
    fluids: Vec<String>,
    /// Faces of obstacles.
    obstacles: Faces,
}

impl Painter {
    /// Painter for a scene's `[output.pictures]` and the faces of its obstacles.
    pub(crate) fn new(scene: &Scene, settings: &PictureSettings, obstacles: &Faces) -> Self {
        Self {
            domain: (scene.domain.min, scene.domain.max),
            up: -scene.domain.gravity.normalize_or(DVec3::NEG_Z),
            framed: None,
            obstacles: obstacles.clone(),
            colours: colours(scene, settings),
            fluids: fluids(scene),
            settings: settings.clone(),
        }
    }

    /// The corners of a box around the places where particles have been in pictures, for a checkpoint.
    pub(crate) fn framed(&self) -> Option<(DVec3, DVec3)> {
        self.framed
    }

    /// Takes over the box of a run that goes on.
    pub(crate) fn go_on(&mut self, framed: Option<(DVec3, DVec3)>) {
        self.framed = framed;
    }

    /// Draws a frame into a PNG file. Participants with a surface are drawn by it.
    pub(crate) fn draw(
        &mut self,
        frames: &[ParticipantFrame],
        surfaces: &BTreeMap<String, Surface>,
        path: &Path,
    ) -> Result<(), FramesError> {
        let camera = self.camera(frames);
        let drawn = |frame| self.drawn_by_surface(frame, surfaces).unwrap_or_else(|| self.drawn(frame));
        let drawn: Vec<Drawn<'_>> = frames.iter().map(drawn).collect();
        let layers = frames.iter().zip(&drawn).map(|(frame, drawn)| {
            let positions = &*drawn.positions;
            let colour = self.paint(&frame.name, drawn.values.as_deref());
            let triangles = &drawn.triangles;
            match (drawn.shape, colour) {
                (Shape::Balls, _) => {
                    Layer::Spheres { positions, radius: Radius::Each(&drawn.radius), colour }
                }
                (Shape::Water, Paint::One(colour)) => Layer::Water { positions, triangles, colour },
                _ => Layer::Surface { positions, triangles, colour },
            }
        });
        let (positions, triangles) = &shown(&self.obstacles, &camera, self.settings.cut);
        let obstacles = Layer::Wall { positions, triangles, colour: Paint::One(STONE) };
        let drawing = Drawing {
            layers: layers.chain([obstacles]).collect(),
            // A camera that looks straight at the floor gets none.
            ground: (camera.up == self.up).then(|| self.floor()),
            outline: Some(self.domain),
            ..Drawing::default()
        };
        drawing.render(&camera, self.settings.width, self.settings.height)?.write_png(path)
    }

    /// Height of the domain's lowest corner [m].
    fn floor(&self) -> f64 {
        DVec3::select(self.up.cmpgt(DVec3::ZERO), self.domain.0, self.domain.1).dot(self.up)
    }

    /// The scene's camera, or one that sees all places where particles have been.
    fn camera(&mut self, frames: &[ParticipantFrame]) -> Camera {
        if self.settings.whole_domain || self.settings.eye.is_some() {
            return camera(&self.settings, self.domain, self.domain, self.up);
        }
        let (low, high) = self.domain;
        let boxes = frames.iter().filter_map(bounds).chain(self.framed);
        let all = boxes.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        self.framed = all.map(|(a, b)| (a.clamp(low, high), b.clamp(low, high)));
        let (a, b) = self.framed.unwrap_or(self.domain);
        let margin = DVec3::splat(MARGIN * (b - a).max_element());
        camera(&self.settings, self.domain, (low.max(a - margin), high.min(b + margin)), self.up)
    }

    /// The surface of a participant, if there is one that its colour can be drawn on: a plain colour, or
    /// speed.
    fn drawn_by_surface<'a>(
        &self,
        frame: &ParticipantFrame,
        surfaces: &'a BTreeMap<String, Surface>,
    ) -> Option<Drawn<'a>> {
        let surface = surfaces.get(&frame.name)?;
        let values = match self.colour(&frame.name) {
            Some(Colour::Field(FieldColour { field, .. })) => {
                let is_known = field == "speed" && surface.velocities.len() == surface.vertices.len();
                let speed = |v: &[f32; 3]| glam::Vec3::from(*v).length();
                Some(is_known.then(|| surface.velocities.iter().map(speed).collect())?)
            }
            _ => None,
        };
        let is_kept = |t: &&[u32; 3]| {
            let is_kept =
                |cut: ClippingPlane| t.iter().all(|&vertex| cut.keeps(surface.vertices[vertex as usize]));
            self.settings.cut.is_none_or(is_kept)
        };
        let triangles: Vec<[u32; 3]> = surface.triangles.iter().filter(is_kept).copied().collect();
        let radius = Cow::Owned(Vec::new());
        // A surface that is cut open does not tell how much water lies behind it.
        let is_water = self.settings.cut.is_none() && self.fluids.contains(&frame.name);
        let shape = if is_water { Shape::Water } else { Shape::Surface };
        Some(Drawn {
            positions: surface.vertices.as_slice().into(),
            radius,
            triangles: triangles.into(),
            values,
            shape,
        })
    }

    /// Part of a participant that is drawn: the whole, or the part that the cut leaves.
    fn drawn<'a>(&self, frame: &'a ParticipantFrame) -> Drawn<'a> {
        let values = self.values(frame);
        let (positions, radius) = (frame.positions.as_slice(), frame.radius.as_slice());
        let Some(cut) = self.settings.cut else {
            let shape = if frame.triangles.is_empty() { Shape::Balls } else { Shape::Surface };
            let triangles = Cow::from(&frame.triangles);
            return Drawn { positions: positions.into(), radius: radius.into(), triangles, values, shape };
        };
        if !frame.triangles.is_empty() {
            let kept = |t: &&[u32; 3]| t.iter().all(|&vertex| cut.keeps(positions[vertex as usize]));
            let triangles = frame.triangles.iter().filter(kept).copied().collect();
            let shape = Shape::Surface;
            return Drawn { positions: positions.into(), radius: radius.into(), triangles, values, shape };
        }
        let kept: Vec<usize> = (0..positions.len()).filter(|&i| cut.keeps(positions[i])).collect();
        Drawn {
            positions: kept.iter().map(|&i| positions[i]).collect(),
            radius: kept.iter().map(|&i| radius[i]).collect(),
            triangles: Cow::Owned(Vec::new()),
            shape: Shape::Balls,
            values: values.map(|values| kept.iter().map(|&i| values[i]).collect()),
        }
    }

    fn colour(&self, participant: &str) -> Option<&Colour> {
        self.colours.iter().find_map(|(name, colour)| (name == participant).then_some(colour))
    }

    /// The first participant whose colour names a field that it does not have, and what to write.
    pub(crate) fn missing_field<'a>(&self, frames: &'a [ParticipantFrame]) -> Option<(&'a str, String)> {
        frames.iter().find_map(|frame| {
            let Some(Colour::Field(FieldColour { field, .. })) = self.colour(&frame.name) else {
                return None;
            };
            let names = || frame.fields.iter().map(|(name, _)| name.as_str());
            if field == "speed" || names().any(|name| name == field) {
                return None;
            }
            let there = std::iter::once("speed").chain(names()).collect::<Vec<_>>().join(", ");
            let name = frame.name.as_str();
            Some((name, format!("{name} has no field {field:?} to colour it by: write one of {there}")))
        })
    }

    /// The field that colours a participant.
    fn values(&self, frame: &ParticipantFrame) -> Option<Vec<f32>> {
        let Some(Colour::Field(FieldColour { field, .. })) = self.colour(&frame.name) else { return None };
        if field == "speed" {
            return Some(frame.velocities.iter().map(|velocity| velocity.length() as f32).collect());
        }
        frame.fields.iter().find(|(name, _)| name == field).map(|(_, values)| match values {
            FrameField::Scalar(values) => values.clone(),
            FrameField::Vector(values) => values.iter().map(|v| glam::Vec3::from(*v).length()).collect(),
        })
    }

    fn paint<'a>(&self, participant: &str, values: Option<&'a [f32]>) -> Paint<'a> {
        match (self.colour(participant), values) {
            (Some(Colour::Field(FieldColour { ramp, range, .. })), Some(values)) => {
                let range =
                    range.map(|range| range.map(|end| end as f32)).unwrap_or_else(|| range_of(values));
                let map = match ramp {
                    Ramp::Water => ColourMap::Water,
                    Ramp::Viridis => ColourMap::Viridis,
                    Ramp::Inferno => ColourMap::Inferno,
                };
                Paint::Mapped { values, range, map }
            }
            (Some(Colour::Plain(rgb)), _) => Paint::One(rgb.map(|channel| f32::from(channel) / 255.0)),
            // A field that the participant does not have: grey says that it is missing.
            _ => Paint::One([0.6; 3]),
        }
    }
}

/// Part of the obstacles that a camera shows: the part that the cut leaves, and nothing from behind the
/// camera.
fn shown((corners, triangles): &Faces, camera: &Camera, cut: Option<ClippingPlane>) -> Faces {
    // Triangles that reach nearer than this are not drawn at all.
    const NEAREST: f64 = 2e-3;
    let ahead = camera.target - camera.eye;
    let planes = [(camera.eye + NEAREST * ahead, -ahead)];
    let planes = planes.into_iter().chain(cut.map(|cut| (cut.point, cut.normal))).collect::<Vec<_>>();
    let (mut kept, mut faces) = (corners.clone(), Vec::new());
    for triangle in triangles {
        let whole = triangle.map(|i| corners[i as usize]);
        let is_shown =
            |corner: &DVec3| planes.iter().all(|&(point, normal)| (corner - point).dot(normal) <= 0.0);
        if whole.iter().all(is_shown) {
            faces.push(*triangle);
            continue;
        }
        let cut = |rest: Vec<DVec3>, &(point, normal): &(DVec3, DVec3)| polygon::clip(&rest, point, normal);
        let rest = planes.iter().fold(whole.to_vec(), cut);
        let first = kept.len() as u32;
        faces.extend((2..rest.len() as u32).map(|i| [first, first + i - 1, first + i]));
        kept.extend(rest);
    }
    let creased = creased(&kept, &faces);
    (creased.each(&kept), creased.triangles)
}

/// Least and greatest value, a little apart if all are equal.
fn range_of(values: &[f32]) -> [f32; 2] {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return [0.0, 1.0];
    }
    [low, high.max(low + 1e-6 * low.abs().max(1.0))]
}

/// A box around the particles of a participant, but for a few that are far away; none without particles.
fn bounds(frame: &ParticipantFrame) -> Option<(DVec3, DVec3)> {
    let left_out = frame.positions.len() / STRAY;
    let radius = frame.radius.iter().copied().fold(0.0, f64::max);
    let end = |axis: usize, place: usize| {
        let mut values: Vec<f64> = frame.positions.iter().map(|x| x[axis]).collect();
        *values.select_nth_unstable_by(place, f64::total_cmp).1
    };
    let last = frame.positions.len().checked_sub(1 + left_out)?;
    let [low, high] = [left_out, last].map(|place| DVec3::from([0, 1, 2].map(|axis| end(axis, place))));
    Some((low - radius, high + radius))
}

/// The scene's camera, or one that sees all of a box, a little from above and from the side.
fn camera(settings: &PictureSettings, domain: (DVec3, DVec3), seen: (DVec3, DVec3), up: DVec3) -> Camera {
    let aspect = f64::from(settings.width) / f64::from(settings.height);
    let (right, ahead) = up.any_orthonormal_pair();
    // A view straight down or up needs some direction for the top of the picture.
    let upright = |view: DVec3| if view.cross(up).length() < 1e-6 * view.length() { ahead } else { up };
    if let Some(eye) = settings.eye {
        let target = settings.target.unwrap_or(0.5 * (domain.0 + domain.1));
        let up = upright(target - eye);
        return Camera { eye, target, up, vertical_fov_degrees: settings.field_of_view };
    }
    let direction = settings.direction.unwrap_or(0.45 * right + ahead - 0.42 * up);
    let camera_up = upright(direction);
    let camera = Camera::framing(seen, direction, camera_up, settings.field_of_view, aspect);
    let shift = settings.target.map_or(DVec3::ZERO, |target| target - camera.target);
    Camera { eye: camera.eye + shift, target: camera.target + shift, ..camera }
}

fn fluids(scene: &Scene) -> Vec<String> {
    let fluids =
        scene.participants.iter().filter(|participant| participant.solver == SolverKind::Fluid.name());
    fluids.map(|participant| participant.name.clone()).collect()
}

/// The colour of each participant, the scene's or one by its solver.
pub(crate) fn colours(scene: &Scene, settings: &PictureSettings) -> Vec<(String, Colour)> {
    let mut warm = WARM.into_iter().cycle();
    let of_kind = |name: &str, solver: &str, warm: &mut dyn Iterator<Item = [u8; 3]>| {
        if solver == SolverKind::Fluid.name() {
            if scene.output.surfaces.contains_key(name) && settings.cut.is_none() {
                return Colour::Plain(WATER);
            }
            // Up to three quarters of the speed of free fall through the domain, so that colours mean the
            // same in all frames.
            let height =
                (scene.domain.max - scene.domain.min).dot(scene.domain.gravity.normalize_or_zero()).abs();
            let fastest = 0.75 * (2.0 * scene.domain.gravity.length() * height).sqrt();
            let range = (fastest > 0.0).then_some([0.0, fastest]);
            return Colour::Field(FieldColour { field: "speed".to_string(), ramp: Ramp::Water, range });
        }
        Colour::Plain(warm.next().unwrap_or([0x99; 3]))
    };
    let pair = |participant: &crate::scene::Participant| {
        let given = settings.colours.get(&participant.name).cloned();
        (
            participant.name.clone(),
            given.unwrap_or_else(|| of_kind(&participant.name, &participant.solver, &mut warm)),
        )
    };
    scene.participants.iter().map(pair).collect()
}
