//! `[output]`: the files that a run writes.

use std::{collections::BTreeMap, fmt};

use glam::DVec3;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// Largest width and height of a picture [pixels].
pub const PICTURE_SIDE_MAX: u32 = 8192;

/// Passes of smoothing of a surface, at most.
const SMOOTHING_MAX: u32 = 1000;

/// `[output]`: frames and pictures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// `true` writes frames as VTK files, which ParaView opens.
    pub vtk: bool,
    /// Interval in frames; the first is always written.
    pub every: u32,
    /// `"none"` or `"zlib"`, for the values in VTK files.
    pub compression: Compression,
    /// `[output.pictures]`: draw pictures.
    pub pictures: Option<PictureSettings>,
    /// `[output.usd]`: write all frames as one animated scene at the end, `NAME.usda`.
    pub usd: Option<UsdOutput>,
    /// `[output.surfaces.NAME]`: write the surface of the participant NAME.
    pub surfaces: BTreeMap<String, SurfaceOutput>,
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self {
            vtk: true,
            every: 1,
            compression: Compression::None,
            pictures: None,
            usd: None,
            surfaces: BTreeMap::new(),
        }
    }
}

/// Compression of values in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    None,
    /// Compression by zlib.
    Zlib,
}

/// `[output.usd]`: the frames as a scene for Blender, Houdini and others.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsdOutput {
    /// `true` includes the particles of participants that have a surface; renderers leave them out.
    pub particles: bool,
}

impl Default for UsdOutput {
    fn default() -> Self {
        Self { particles: true }
    }
}

/// `[output.surfaces.PARTICIPANT]`: a closed mesh around the particles, as a `.ply` file per frame.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SurfaceOutput {
    /// Interval in frames; the first is always written.
    pub every: u32,
    /// Edge of the cubes of the level set in particle radii, 0.1 to 4: smaller is smoother and takes
    /// longer. Not read for solids.
    pub cell: f64,
    /// Passes of smoothing, 0 to 1000: each moves a vertex towards the mean of its neighbours, less where few
    /// particles are. Not read for solids.
    pub smoothing: u32,
}

impl Default for SurfaceOutput {
    fn default() -> Self {
        Self { every: 1, cell: 1.0, smoothing: 25 }
    }
}

/// `[output.pictures]`: PNG pictures of frames.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PictureSettings {
    /// Interval in frames; the first is always drawn.
    pub every: u32,
    /// Width, 16 to 8192 [pixels].
    pub width: u32,
    /// Height, 16 to 8192 [pixels].
    pub height: u32,
    /// `true` shows the whole domain. Otherwise the camera shows the places where particles have been so far,
    /// and stands farther away as they go farther. Only without `eye`.
    pub whole_domain: bool,
    /// Place of the camera [m]. Default: far enough to see all that is to be shown.
    pub eye: Option<DVec3>,
    /// Point that the camera looks at [m]. Default: the middle of the visible box, or with `eye`, of the
    /// domain.
    pub target: Option<DVec3>,
    /// Direction in which the camera looks; only without `eye`. Default: a little from above.
    pub direction: Option<DVec3>,
    /// Vertical field of view, above 0 and below 170 [degrees].
    pub field_of_view: f64,
    /// Leaves out everything beyond a plane, as in `{ point = [0, 0, 0], normal = [0, -1, 0] }`, on the
    /// side that the normal points to.
    pub cut: Option<ClippingPlane>,
    /// Colour of each participant, by name. Default: by solver.
    pub colours: BTreeMap<String, Colour>,
}

impl Default for PictureSettings {
    fn default() -> Self {
        Self {
            every: 1,
            width: 1280,
            height: 720,
            whole_domain: false,
            eye: None,
            target: None,
            direction: None,
            field_of_view: 32.0,
            cut: None,
            colours: BTreeMap::new(),
        }
    }
}

/// A clipping plane: nothing is drawn beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClippingPlane {
    /// A point of the plane [m].
    pub point: DVec3,
    /// Direction from the plane to the side that is not drawn; of any length.
    pub normal: DVec3,
}

impl ClippingPlane {
    /// True if an object at `position` [m] is drawn.
    pub fn keeps(&self, position: DVec3) -> bool {
        (position - self.point).dot(self.normal) <= 0.0
    }
}

/// Colour of a participant in pictures.
#[derive(Clone, Debug, PartialEq)]
pub enum Colour {
    /// A single colour, red, green, blue: `"#d97a3f"`.
    Plain([u8; 3]),
    /// By a field: `{ field = "speed", ramp = "water", range = [0.0, 3.0] }`, or only the ramp's name for
    /// speed.
    Field(FieldColour),
}

/// A field on a colour ramp.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldColour {
    /// `speed`, or a scalar field of the participant.
    #[serde(default = "speed")]
    pub field: String,
    /// Colour ramp: `"water"`, `"viridis"` or `"inferno"`.
    #[serde(default)]
    pub ramp: Ramp,
    /// Values at the ends of the ramp. Default: the least and the greatest of each frame.
    pub range: Option<[f64; 2]>,
}

fn speed() -> String {
    "speed".to_string()
}

/// A colour ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ramp {
    /// Deep blue to white.
    Water,
    /// Perceptually even, dark violet to yellow.
    #[default]
    Viridis,
    /// Perceptually even, black over red to pale yellow.
    Inferno,
}

impl<'de> Deserialize<'de> for Colour {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ColourVisitor)
    }
}

struct ColourVisitor;

impl<'de> Visitor<'de> for ColourVisitor {
    type Value = Colour;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a colour: \"#d97a3f\", \"water\", \"viridis\", \"inferno\" or { field = \"speed\", ramp = \"water\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Colour, E> {
        let ramp = |ramp| Colour::Field(FieldColour { field: speed(), ramp, range: None });
        match text {
            "water" => return Ok(ramp(Ramp::Water)),
            "viridis" => return Ok(ramp(Ramp::Viridis)),
            "inferno" => return Ok(ramp(Ramp::Inferno)),
            _ => {}
        }
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))?;
        let [_, red, green, blue] = number.to_be_bytes();
        Ok(Colour::Plain([red, green, blue]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Colour, A::Error> {
        FieldColour::deserialize(MapAccessDeserializer::new(map)).map(Colour::Field)
    }
}

/// The path of a key, and what to write instead.
type KeyFault = (String, String);

fn fault(key: &str, message: &str) -> KeyFault {
    (key.to_string(), message.to_string())
}

/// Puts the path of a table before the keys of its faults.
fn inside(table: &str, faults: Vec<KeyFault>) -> impl Iterator<Item = KeyFault> {
    faults.into_iter().map(move |(key, message)| (format!("{table}.{key}"), message))
}

impl OutputSettings {
    /// Finds the faults of the values: the key's path, and what to write.
    pub fn faults(&self) -> Vec<KeyFault> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, message: &str| faults.push(fault(key, message));
        if self.every == 0 {
            wrong("every", "every must be at least 1: every frame is written with every = 1");
        }
        if self.usd.is_some() && !self.vtk {
            wrong("usd", "the scene over time is made of the frames: write vtk = true");
        }
        for (name, surface) in &self.surfaces {
            faults.extend(inside(&format!("surfaces.{name}"), surface.faults()));
        }
        if let Some(pictures) = &self.pictures {
            faults.extend(inside("pictures", pictures.faults()));
        }
        faults
    }
}

impl SurfaceOutput {
    fn faults(&self) -> Vec<KeyFault> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, message: &str| faults.push(fault(key, message));
        if self.every == 0 {
            wrong("every", "every must be at least 1: every frame gets a surface with every = 1");
        }
        if self.smoothing > SMOOTHING_MAX {
            wrong(
                "smoothing",
                &format!("smoothing is at most {SMOOTHING_MAX} passes; water looks smooth after 25"),
            );
        }
        // Written so that NaN fails.
        if !(self.cell >= 0.1 && self.cell <= 4.0) {
            wrong(
                "cell",
                "cell is in particle radii, from 0.1 (fine) to 4 (coarse); write for example cell = 1.0",
            );
        }
        faults
    }
}

impl PictureSettings {
    fn faults(&self) -> Vec<KeyFault> {
        [self.faults_of_size(), self.faults_of_camera(), self.faults_of_content()].concat()
    }

    fn faults_of_size(&self) -> Vec<KeyFault> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, message: &str| faults.push(fault(key, message));
        if self.every == 0 {
            wrong("every", "every must be at least 1: every frame is drawn with every = 1");
        }
        for (key, side) in [("width", self.width), ("height", self.height)] {
            if !(16..=PICTURE_SIDE_MAX).contains(&side) {
                wrong(key, &format!("a picture's side is 16 to {PICTURE_SIDE_MAX} pixels, not {side}"));
            }
        }
        faults
    }

    fn faults_of_camera(&self) -> Vec<KeyFault> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, message: &str| faults.push(fault(key, message));
        if !(self.field_of_view > 0.0 && self.field_of_view < 170.0) {
            wrong("field_of_view", "field_of_view is in degrees, above 0 and below 170");
        }
        for (key, vector) in [("eye", self.eye), ("target", self.target), ("direction", self.direction)] {
            if vector.is_some_and(|vector| !vector.is_finite()) {
                wrong(key, &format!("{key} must be three finite numbers"));
            }
        }
        if self.eye.is_some() && self.direction.is_some() {
            wrong(
                "direction",
                "give eye or direction, not both: direction is for a camera that finds its own place",
            );
        }
        if self.eye.is_some() && self.eye == self.target {
            wrong("target", "target must not be where the eye is");
        }
        if self.direction == Some(DVec3::ZERO) {
            wrong("direction", "direction must not be zero; write for example direction = [-0.6, 1.0, -0.4]");
        }
        faults
    }

    /// Faults of the cut and of the colours.
    fn faults_of_content(&self) -> Vec<KeyFault> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, message: &str| faults.push(fault(key, message));
        if self
            .cut
            .is_some_and(|cut| !cut.point.is_finite() || !cut.normal.is_finite() || cut.normal == DVec3::ZERO)
        {
            wrong("cut", "cut needs a point and a normal that is not zero, such as normal = [0, -1, 0]");
        }
        for (name, colour) in &self.colours {
            let Colour::Field(FieldColour { range: Some([low, high]), .. }) = colour else { continue };
            if !(low.is_finite() && high.is_finite() && low < high) {
                wrong(&format!("colours.{name}.range"), "range is [least, greatest] with least < greatest");
            }
        }
        faults
    }
}
