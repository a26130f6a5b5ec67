//! Colours: rules that give each particle one, and the colour maps.

use std::cmp::Ordering;

use glam::Vec3;

/// A colour as sRGB values in 0..1.
pub type Rgb = [f32; 3];

/// Colours of particles.
#[derive(Clone, Copy, Debug)]
pub enum Colour<'a> {
    /// All the same.
    One(Rgb),
    /// A scalar field through a colour map. Values outside the range get the colour of its nearer end; NaN is
    /// drawn magenta.
    Mapped {
        /// One value per particle.
        values: &'a [f32],
        /// The values at the ends of the map.
        range: [f32; 2],
        /// The map.
        map: ColourMap,
    },
}

/// A colour map of even lightness steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourMap {
    /// From deep blue to white: water by its speed.
    Water,
    /// From violet over green to yellow [Smith2015].
    Viridis,
    /// From black over red to pale yellow [Smith2015]: damage, heat.
    Inferno,
}

impl ColourMap {
    /// The colour at `t`, from 0 to 1.
    pub fn at(self, t: f32) -> Rgb {
        if t.is_nan() {
            return [1.0, 0.0, 1.0];
        }
        let stops: &[u32] = match self {
            Self::Water => &[0x1559ad, 0x1f71c4, 0x348cd8, 0x5ba9e6, 0x8fc8f1, 0xc4e3f8, 0xf7fbff],
            Self::Viridis => &[
                0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e, 0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b,
                0xfde725,
            ],
            Self::Inferno => &[
                0x000004, 0x1b0c41, 0x4a0c6b, 0x781c6d, 0xa52c60, 0xcf4446, 0xed6925, 0xfb9b06, 0xf7d13d,
                0xfcffa4,
            ],
        };
        let place = t.clamp(0.0, 1.0) * (stops.len() - 1) as f32;
        let i = (place as usize).min(stops.len() - 2);
        let [a, b] =
            [stops[i], stops[i + 1]].map(|s| Vec3::from([s >> 16, s >> 8, s].map(|c| (c & 0xff) as f32)));
        (a.lerp(b, place - i as f32) / 255.0).into()
    }
}

impl Colour<'_> {
    pub(super) fn check(&self, expected: usize) -> Result<(), String> {
        match self {
            Self::Mapped { values, .. } if values.len() != expected => {
                Err(format!("{} colour values for {expected} particles", values.len()))
            }
            Self::Mapped { range: [low, high], .. } if low.partial_cmp(high) != Some(Ordering::Less) => {
                Err(format!("the range of colours is {low} to {high}, but must ascend"))
            }
            _ => Ok(()),
        }
    }

    /// The linear colour of particle `i`.
    pub(super) fn linear(&self, i: usize) -> Vec3 {
        match self {
            Self::One(colour) => linear(*colour),
            Self::Mapped { values, range: [low, high], map } => {
                linear(map.at((values[i] - low) / (high - low)))
            }
        }
    }
}

/// Linear light of an sRGB colour (IEC 61966-2-1).
pub(super) fn linear(colour: Rgb) -> Vec3 {
    Vec3::from(colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }))
}

/// 8-bit sRGB of linear light in 0..1, by table.
pub(super) struct ToSrgb(Vec<u8>);

impl ToSrgb {
    const STEPS: f32 = 8191.0;

    pub(super) fn new() -> Self {
        let code = |i: u32| {
            let light = i as f32 / Self::STEPS;
            let c = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
            (255.0 * c + 0.5) as u8
        };
        Self((0..=Self::STEPS as u32).map(code).collect())
    }

    pub(super) fn code(&self, light: Vec3) -> [u8; 3] {
        light.to_array().map(|c| self.0[(c.clamp(0.0, 1.0) * Self::STEPS + 0.5) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_ascend_in_luminance() {
        for map in [ColourMap::Water, ColourMap::Viridis, ColourMap::Inferno] {
            let luminance =
                |i: u8| linear(map.at(f32::from(i) / 255.0)).dot(Vec3::new(0.2126, 0.7152, 0.0722));
            assert!((1..=255).all(|i| luminance(i) > luminance(i - 1)), "{map:?}");
        }
    }

    #[test]
    fn srgb_round_trip() {
        let codes = ToSrgb::new();
        for i in (10..=250u8).step_by(10) {
            assert_eq!(codes.code(linear([f32::from(i) / 255.0; 3])), [i; 3]);
        }
    }
}
