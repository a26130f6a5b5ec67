//! Rendered pictures against the formulas of projection.

use amalgam_frames::{Camera, Colour, ColourMap, DVec3, Layer, Picture, Radius, Scene};

const WIDTH: u32 = 320;
const HEIGHT: u32 = 200;
const FOV: f64 = 40.0;
const RED: [f32; 3] = [0.9, 0.1, 0.1];
const BLUE: [f32; 3] = [0.1, 0.1, 0.9];

/// Looks from (0, 0, distance) at the origin.
fn camera(distance: f64) -> Camera {
    Camera { eye: distance * DVec3::Z, target: DVec3::ZERO, up: DVec3::Y, vertical_fov_degrees: FOV }
}

/// Distance of the image plane [pixels].
fn focal() -> f64 {
    0.5 * f64::from(HEIGHT) / (0.5 * FOV.to_radians()).tan()
}

fn black<'a>(layers: Vec<Layer<'a>>) -> Scene<'a> {
    Scene { layers, background: [[0.0; 3]; 2], ..Scene::default() }
}

fn sphere(position: &[DVec3; 1], radius: f64, colour: [f32; 3]) -> Layer<'_> {
    Layer::Spheres { positions: position, radius: Radius::One(radius), colour: Colour::One(colour) }
}

fn render(scene: &Scene<'_>, camera: &Camera) -> Picture {
    scene.render(camera, WIDTH, HEIGHT).expect("renders")
}

fn pixel(picture: &Picture, x: u32, y: u32) -> [u8; 3] {
    picture.pixels[(y * picture.width + x) as usize]
}

/// First and last column and row that are not black.
fn extent(picture: &Picture) -> [f64; 4] {
    let shown = |x: u32, y: u32| pixel(picture, x, y) != [0; 3];
    let columns: Vec<u32> = (0..WIDTH).filter(|&x| (0..HEIGHT).any(|y| shown(x, y))).collect();
    let rows: Vec<u32> = (0..HEIGHT).filter(|&y| (0..WIDTH).any(|x| shown(x, y))).collect();
    [columns[0], columns[columns.len() - 1] + 1, rows[0], rows[rows.len() - 1] + 1].map(f64::from)
}

fn is_red([r, g, b]: [u8; 3]) -> bool {
    r > 60 && r > 2 * g && r > 2 * b
}

fn is_blue([r, g, b]: [u8; 3]) -> bool {
    b > 60 && b > 2 * g && b > 2 * r
}

#[test]
fn a_sphere_has_its_silhouette() {
    // Tangents through the eye make the angle asin(r/d) with the direction to the centre, on either side; a
    // small sphere far away tests rounding.
    for (centre, radius, distance) in [
        (DVec3::ZERO, 1.0, 5.0),
        (DVec3::new(0.9, -0.4, 1.0), 0.6, 5.0),
        (DVec3::new(-0.02, 0.01, 0.0), 0.01, 0.2),
        (DVec3::new(30.0, 10.0, 3.0), 2.0, 100.0),
    ] {
        let positions = [centre];
        let picture = render(&black(vec![sphere(&positions, radius, RED)]), &camera(distance));
        let ends = |a: f64, middle: f64, sign: f64| {
            let depth = distance - centre.z;
            let (at, half) = ((a / depth).atan(), (radius / a.hypot(depth)).asin());
            [-1.0, 1.0].map(|side| middle + focal() * (sign * at + side * half).tan())
        };
        let [left, right] = ends(centre.x, 0.5 * f64::from(WIDTH), 1.0);
        let [top, bottom] = ends(centre.y, 0.5 * f64::from(HEIGHT), -1.0);
        for (found, expected) in extent(&picture).into_iter().zip([left, right, top, bottom]) {
            assert!(
                (found - expected).abs() <= 1.0,
                "{found} instead of {expected} for {centre} at {distance}"
            );
        }
        let at = [left + right, top + bottom].map(|sum| (0.5 * sum) as u32);
        assert!(is_red(pixel(&picture, at[0], at[1])), "{:?}", pixel(&picture, at[0], at[1]));
    }
}

#[test]
fn the_nearer_sphere_hides_the_other() {
    let (near, far) = ([DVec3::new(0.1, 0.0, 1.0)], [DVec3::new(0.0, 0.0, -1.0)]);
    let centre = |layers| pixel(&render(&black(layers), &camera(8.0)), WIDTH / 2, HEIGHT / 2);
    assert!(is_blue(centre(vec![sphere(&near, 0.5, BLUE), sphere(&far, 0.8, RED)])));
    assert!(is_blue(centre(vec![sphere(&far, 0.8, RED), sphere(&near, 0.5, BLUE)])));
    // Spheres that cross meet where their surfaces do: at equal distance, in the plane between them.
    let (left, right) = ([DVec3::new(-0.3, 0.0, 0.0)], [DVec3::new(0.3, 0.0, 0.0)]);
    let picture = render(&black(vec![sphere(&left, 0.5, RED), sphere(&right, 0.5, BLUE)]), &camera(4.0));
    assert!(is_red(pixel(&picture, WIDTH / 2 - 2, HEIGHT / 2)));
    assert!(is_blue(pixel(&picture, WIDTH / 2 + 1, HEIGHT / 2)));
}

/// A unit square in the plane z = 0.
const SQUARE: [DVec3; 4] = [
    DVec3::new(-0.5, -0.5, 0.0),
    DVec3::new(0.5, -0.5, 0.0),
    DVec3::new(0.5, 0.5, 0.0),
    DVec3::new(-0.5, 0.5, 0.0),
];

fn square(colour: Colour<'_>) -> Layer<'_> {
    Layer::Surface { positions: &SQUARE, triangles: &[[0, 1, 2], [0, 2, 3]], colour }
}

#[test]
fn a_wall_shows_and_shades_on_one_side() {
    let below = [DVec3::new(0.0, 0.0, -1.0)];
    let wall =
        Layer::Wall { positions: &SQUARE, triangles: &[[0, 1, 2], [0, 2, 3]], colour: Colour::One(RED) };
    let scene = black(vec![wall, sphere(&below, 0.2, BLUE)]);
    let (x, y) = (WIDTH / 2, HEIGHT / 2);
    let middle = |distance: f64| pixel(&render(&scene, &camera(distance)), x, y);
    assert!(is_red(middle(4.0)), "{:?}", middle(4.0));
    assert!(is_blue(middle(-4.0)), "{:?}", middle(-4.0));
    // From behind it is as if there were no wall, shadows included: the lamp stands on the camera's side.
    let alone = render(&black(vec![sphere(&below, 0.2, BLUE)]), &camera(-4.0));
    let through = render(&scene, &camera(-4.0));
    let differs = alone.pixels.iter().zip(&through.pixels).filter(|(a, b)| a[2].abs_diff(b[2]) > 24).count();
    assert!(differs < 40, "{differs}");
}

#[test]
fn a_surface_shows_from_both_sides_and_hides_what_is_behind() {
    let behind = [DVec3::new(0.0, 0.0, -1.0)];
    let scene = black(vec![square(Colour::One(RED)), sphere(&behind, 0.3, BLUE)]);
    let front = render(&scene, &camera(4.0));
    let back = render(&scene, &camera(-4.0));
    let (x, y) = (WIDTH / 2, HEIGHT / 2);
    assert!(is_red(pixel(&front, x, y)), "{:?}", pixel(&front, x, y));
    assert!(is_blue(pixel(&back, x, y)), "{:?}", pixel(&back, x, y));
    let alone = black(vec![square(Colour::One(RED))]);
    for distance in [4.0, -4.0] {
        let picture = render(&alone, &camera(distance));
        let half = 0.5 / 4.0 * focal();
        let expected = [WIDTH, WIDTH, HEIGHT, HEIGHT].map(|size| 0.5 * f64::from(size));
        let expected = [expected[0] - half, expected[1] + half, expected[2] - half, expected[3] + half];
        for (found, expected) in extent(&picture).into_iter().zip(expected) {
            assert!((found - expected).abs() <= 1.0, "{found} instead of {expected}");
        }
        // No crack where the triangles meet.
        let [left, right, top, bottom] = extent(&picture).map(|end| end as u32);
        assert!((left + 1..right - 1).all(|x| (top + 1..bottom - 1).all(|y| is_red(pixel(&picture, x, y)))));
    }
}

#[test]
fn a_lamp_above_lights_the_top_and_casts_a_shadow() {
    let ball = [DVec3::new(0.0, 1.0, 0.0)];
    let eye = Camera { eye: DVec3::new(0.0, 4.0, 8.0), ..camera(8.0) };
    let lit = Scene { layers: vec![sphere(&ball, 0.7, [0.8; 3])], ground: Some(0.0), ..Scene::default() };
    let bare = Scene { layers: vec![], ..lit.clone() };
    let (lit, bare) = (render(&lit, &eye), render(&bare, &eye));
    let brightness = |p: [u8; 3]| p.map(u32::from).iter().sum::<u32>();
    // The ball's column, from its top down to its lowest row.
    let rows: Vec<u32> =
        (0..HEIGHT).filter(|&y| pixel(&lit, WIDTH / 2, y) != pixel(&bare, WIDTH / 2, y)).collect();
    let (top, bottom) = (rows[rows.len() / 4], rows[rows.len() * 2 / 3]);
    assert!(brightness(pixel(&lit, WIDTH / 2, top)) > brightness(pixel(&lit, WIDTH / 2, bottom)) + 60);
    // The lamp stands on the left, so the shadow falls to the right of the ball.
    let darker = |x: u32, y: u32| brightness(pixel(&lit, x, y)) + 60 < brightness(pixel(&bare, x, y));
    let shaded =
        |columns: std::ops::Range<u32>| columns.filter(|&x| (0..HEIGHT).any(|y| darker(x, y))).count();
    assert!(shaded(WIDTH / 2 + 30..WIDTH) > 5);
    assert_eq!(shaded(0..WIDTH / 2 - 30), 0);
}

#[test]
fn a_frame_of_a_box_just_holds_it() {
    let bounds = (DVec3::new(-1.0, 0.0, -2.0), DVec3::new(2.0, 1.0, 3.0));
    let aspect = f64::from(WIDTH) / f64::from(HEIGHT);
    for direction in [DVec3::new(-0.4, -0.3, -1.0), DVec3::X, DVec3::new(0.2, -1.0, 0.1)] {
        let camera = Camera::framing(bounds, direction, DVec3::Y, FOV, aspect);
        // Eight dots in the corners.
        let corner = |i: usize| {
            let pick = |axis: usize| if i >> axis & 1 == 0 { bounds.0[axis] } else { bounds.1[axis] };
            DVec3::new(pick(0), pick(1), pick(2))
        };
        let corners: Vec<DVec3> = (0..8).map(corner).collect();
        let dots =
            Layer::Spheres { positions: &corners, radius: Radius::One(0.02), colour: Colour::One(RED) };
        let [left, right, top, bottom] = extent(&render(&black(vec![dots]), &camera));
        let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
        assert!(left > 0.0 && right < width && top > 0.0 && bottom < height, "cut off along {direction}");
        let gaps = [left / width, 1.0 - right / width, top / height, 1.0 - bottom / height];
        assert!(gaps.iter().any(|&gap| gap < 0.05), "too far along {direction}: {gaps:?}");
        // In the middle to within rounding along the axis that limits the distance, about so along the other.
        let (across, along) = ((gaps[0] - gaps[1]).abs(), (gaps[2] - gaps[3]).abs());
        assert!(
            across.min(along) < 0.01 && across.max(along) < 0.05,
            "not in the middle along {direction}: {gaps:?}"
        );
    }
}

#[test]
fn pictures_do_not_depend_on_threads() {
    let positions: Vec<DVec3> = (0..3000)
        .map(|i| {
            let t = f64::from(i);
            DVec3::new((12.9 * t).sin(), (78.2 * t).sin(), (37.7 * t).sin())
        })
        .collect();
    let speed: Vec<f32> = (0..3000).map(|i| i as f32).collect();
    let colour = Colour::Mapped { values: &speed, range: [0.0, 3000.0], map: ColourMap::Water };
    let scene = Scene {
        layers: vec![
            Layer::Spheres { positions: &positions, radius: Radius::One(0.1), colour },
            square(Colour::One(RED)),
        ],
        ground: Some(-1.2),
        outline: Some((DVec3::splat(-1.2), DVec3::splat(1.2))),
        ..Scene::default()
    };
    let pictures: Vec<Picture> = [1, 2, 3, 7]
        .iter()
        .map(|&threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
            pool.install(|| render(&scene, &camera(6.0)))
        })
        .collect();
    assert!(pictures.iter().all(|picture| *picture == pictures[0]));
}

#[test]
fn a_speck_far_from_the_target_is_drawn() {
    let speck = [DVec3::new(1000.0, 0.0, 0.0)];
    let camera = Camera { vertical_fov_degrees: 0.001, ..camera(1e6) };
    let picture =
        render(&black(vec![sphere(&speck, 1.0, RED)]), &Camera { target: DVec3::X * 999.0, ..camera });
    assert!(picture.pixels.iter().any(|&p| is_red(p)));
}

#[test]
fn a_png_reads_back() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("picture.png");
    let position = [DVec3::ZERO];
    let picture =
        render(&Scene { layers: vec![sphere(&position, 1.0, RED)], ..Scene::default() }, &camera(5.0));
    picture.write_png(&path).expect("writes");
    let file = std::io::BufReader::new(std::fs::File::open(&path).expect("opens"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("an image");
    assert_eq!((info.width, info.height), (WIDTH, HEIGHT));
    assert_eq!(bytes, picture.pixels.as_flattened());
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let position = [DVec3::ZERO];
    let nowhere = [DVec3::new(0.0, f64::NAN, 0.0)];
    let values = Colour::Mapped { values: &[1.0; 3], range: [0.0, 1.0], map: ColourMap::Viridis };
    let triangles = [[0, 1, 4]];
    let cases = [
        (sphere(&nowhere, 1.0, RED), "layer 0: position 0 is [0, NaN, 0]"),
        (sphere(&position, -1.0, RED), "radius of sphere 0 is -1"),
        (
            Layer::Spheres { positions: &position, radius: Radius::Each(&[]), colour: Colour::One(RED) },
            "0 radii for 1",
        ),
        (
            Layer::Spheres { positions: &position, radius: Radius::One(1.0), colour: values },
            "3 colour values for 1",
        ),
        (
            Layer::Surface { positions: &SQUARE, triangles: &triangles, colour: Colour::One(RED) },
            "triangle [0, 1, 4] names a vertex beyond the 4",
        ),
    ];
    for (layer, expected) in cases {
        let error = black(vec![layer]).render(&camera(5.0), 32, 32).expect_err("must be refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let blind = Camera { up: DVec3::Z, ..camera(5.0) };
    assert!(black(vec![]).render(&blind, 32, 32).is_err());
    assert!(black(vec![]).render(&camera(5.0), 0, 32).is_err());
}
