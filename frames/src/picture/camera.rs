//! The camera, and the projection of spheres by it.

use glam::{DVec3, Vec3};

/// A perspective camera.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Position of the camera [m].
    pub eye: DVec3,
    /// The point in the centre of the picture [m].
    pub target: DVec3,
    /// Upward direction; need not be a unit vector or orthogonal to the view.
    pub up: DVec3,
    /// Angle between the lower and the upper edge of the picture.
    pub vertical_fov_degrees: f64,
}

impl Camera {
    /// A camera that looks along `direction` and just sees all of a box, in the middle of a picture of
    /// `aspect` (width over height).
    pub fn framing(
        (low, high): (DVec3, DVec3),
        direction: DVec3,
        up: DVec3,
        vertical_fov_degrees: f64,
        aspect: f64,
    ) -> Self {
        const MARGIN: f64 = 1.06;
        let forward = direction.normalize();
        let right = forward.cross(up).normalize();
        let down = forward.cross(right);
        let centre = 0.5 * (low + high);
        let corner = |i: usize| {
            let pick = |axis: usize| if i >> axis & 1 == 0 { low[axis] } else { high[axis] };
            DVec3::new(pick(0), pick(1), pick(2)) - centre
        };
        // The eye e sees the corner c inside both planes of an axis a, whose slope is t, if
        // +-(c - e).a <= t (c - e).forward.
        // With P and M the largest +-c.a - t c.forward, both planes touch the box at
        // e.a = (P - M) / 2 and e.forward = -(P + M) / (2 t).
        // The axis that needs the larger distance decides.
        let place = |axis: DVec3, slope: f64| {
            let largest = |side: f64| {
                let reach = |i| side * corner(i).dot(axis) - slope * corner(i).dot(forward);
                (0..8).map(reach).fold(f64::NEG_INFINITY, f64::max)
            };
            let (plus, minus) = (largest(1.0), largest(-1.0));
            (0.5 * (plus - minus), -0.5 * (plus + minus) / slope)
        };
        let slope = (0.5 * vertical_fov_degrees.to_radians()).tan() / MARGIN;
        let (x, back_for_x) = place(right, slope * aspect);
        let (y, back_for_y) = place(down, slope);
        let in_middle = centre + x * right + y * down;
        let eye = in_middle + back_for_x.min(back_for_y) * forward;
        Self { eye, target: in_middle, up, vertical_fov_degrees }
    }
}

/// A camera in single precision, relative to some origin near its target. Camera coordinates are (right,
/// down, forward); a sample's ray is (x, y, 1) and depth is measured forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Size [samples].
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) eye: Vec3,
    pub(super) right: Vec3,
    pub(super) down: Vec3,
    pub(super) forward: Vec3,
    /// Distance of the image plane [samples], and one over it.
    pub(super) focal: f32,
    inverse_focal: f32,
    /// The centre of the first sample, from the picture's centre [samples].
    first: (f32, f32),
    /// Distance within which nothing is drawn [m].
    pub(super) near: f32,
}

impl View {
    /// The view of a picture of this size [samples], relative to `origin` [m].
    pub(super) fn new(camera: &Camera, origin: DVec3, width: u32, height: u32) -> Result<Self, String> {
        let to_target = camera.target - camera.eye;
        let right = to_target.cross(camera.up);
        let sine = right.length() / (to_target.length() * camera.up.length());
        if sine.is_nan() || sine < 1e-9 {
            return Err("the camera's target must differ from its eye, and its view from its up".into());
        }
        if !(camera.vertical_fov_degrees > 0.0 && camera.vertical_fov_degrees < 180.0) {
            let what = "the camera's field of view must be between 0 and 180 degrees, but is";
            return Err(format!("{what} {}", camera.vertical_fov_degrees));
        }
        let forward = to_target.normalize();
        let right = right.normalize();
        let focal = 0.5 * f64::from(height) / (0.5 * camera.vertical_fov_degrees.to_radians()).tan();
        Ok(Self {
            width,
            height,
            eye: (camera.eye - origin).as_vec3(),
            right: right.as_vec3(),
            down: forward.cross(right).as_vec3(),
            forward: forward.as_vec3(),
            focal: focal as f32,
            inverse_focal: (1.0 / focal) as f32,
            first: (0.5 - 0.5 * width as f32, 0.5 - 0.5 * height as f32),
            near: 1e-3 * to_target.length() as f32,
        })
    }

    /// A point in camera coordinates.
    #[inline]
    pub(super) fn to_camera(self, point: Vec3) -> Vec3 {
        self.rotate(point - self.eye)
    }

    /// A direction in camera coordinates.
    #[inline]
    pub(super) fn rotate(self, v: Vec3) -> Vec3 {
        Vec3::new(v.dot(self.right), v.dot(self.down), v.dot(self.forward))
    }

    /// A direction out of camera coordinates.
    #[inline]
    pub(super) fn rotate_back(self, v: Vec3) -> Vec3 {
        v.x * self.right + v.y * self.down + v.z * self.forward
    }

    /// The ray through the centre of a sample.
    #[inline]
    pub(super) fn ray(self, x: u32, y: u32) -> Vec3 {
        // Signed, since unsigned integers are slower to convert.
        let x = (x as i32 as f32 + self.first.0) * self.inverse_focal;
        let y = (y as i32 as f32 + self.first.1) * self.inverse_focal;
        Vec3::new(x, y, 1.0)
    }

    /// Projects a point, given in camera coordinates, onto the picture [samples]. The point must lie in front
    /// of the camera.
    #[inline]
    pub(super) fn project(self, c: Vec3) -> (f32, f32) {
        let scale = self.focal / c.z;
        (c.x * scale + 0.5 * self.width as f32, c.y * scale + 0.5 * self.height as f32)
    }

    /// The samples that a ball may cover, as (low x, low y, high x, high y) with the high ends out, or none.
    #[inline]
    pub(super) fn rectangle_of_ball(self, c: Vec3, radius: f32) -> Option<[u32; 4]> {
        if c.z - radius < self.near {
            return None;
        }
        // In the plane of one axis and forward, the tangents to the ball through the eye have the slopes
        // (a z -+ r sqrt(a^2 + z^2 - r^2)) / (z^2 - r^2).
        let tangents = |a: f32| {
            let root = radius * (a * a + (c.z + radius) * (c.z - radius)).sqrt();
            let scale = self.focal / ((c.z + radius) * (c.z - radius));
            ((a * c.z - root) * scale, (a * c.z + root) * scale)
        };
        let (left, right) = tangents(c.x);
        let (top, bottom) = tangents(c.y);
        self.rectangle(left, top, right, bottom)
    }

    /// The samples whose centres may lie in an interval around the picture's centre.
    #[inline]
    pub(super) fn rectangle(self, left: f32, top: f32, right: f32, bottom: f32) -> Option<[u32; 4]> {
        let clip = |low: f32, high: f32, size: u32| {
            // Casts saturate. One sample more on each side covers rounding.
            let low = (low + 0.5 * size as f32 - 1.5).ceil() as u32;
            let high = ((high + 0.5 * size as f32 + 0.5).floor() + 1.0) as u32;
            (low.min(size), high.min(size))
        };
        let (x0, x1) = clip(left, right, self.width);
        let (y0, y1) = clip(top, bottom, self.height);
        (x0 < x1 && y0 < y1).then_some([x0, y0, x1, y1])
    }
}
