//! A message with any columns and counts is read as the contract says or refused, within little memory.

use amalgam_particles::MovingSurface;
use amalgam_proto::contract::{
    Batch, Begin, Call, Commit, Committed, Frame, Integrate, Integrated, Restore, Snapshot, Survey, Surveyed,
    Table, Wanted,
};
use amalgam_proto::{Columns, Known, Room, WireError, v1};
use proptest::prelude::*;

use super::{HEAP, HEAP_MAX};

const COLUMNS: [&str; 32] = [
    "id",
    "position",
    "velocity",
    "mass",
    "radius",
    "immovable",
    "contacts",
    "triangles",
    "interest",
    "listed",
    "cells",
    "group_size",
    "member",
    "watch",
    "occupied",
    "inertia",
    "impulse",
    "momentum",
    "slope",
    "watch_velocity",
    "group_velocity",
    "group_number",
    "member_velocity",
    "track",
    "born_id",
    "dead",
    "cells_0",
    "snapshot",
    "field_0",
    "surface_vertices",
    "surface_velocity",
    "surface_triangles",
];

fn columns() -> impl Strategy<Value = Vec<v1::Column>> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        // Small ids, sizes and numbers come up more often than by chance.
        prop::collection::vec(0u64..4, 0..9).prop_map(|words| bytemuck::cast_slice(&words).to_vec()),
        prop::collection::vec(-2.0f64..2.0, 0..9).prop_map(|values| bytemuck::cast_slice(&values).to_vec()),
    ];
    let column = (prop::sample::select(&COLUMNS[..]), bytes)
        .prop_map(|(name, data)| v1::Column { name: name.into(), data: data.into() });
    prop::collection::vec(column, 0..12)
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, 0u64..4, any::<u64>(), Just(1 << 31), Just((1 << 32) - 1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_columns_are_read_or_refused(data in columns(), counts in prop::array::uniform5(count()), x in any::<f64>()) {
        // As it arrives: what there is no room for is refused.
        let read = |room: Result<Room, WireError>| {
            let mut columns = Columns::within(room.unwrap_or_default());
            for column in &data {
                let _ = columns.append(vec![column.clone()]);
            }
            columns
        };
        let known = Known::default();
        let context = || Some(v1::RunContext::default());
        let vec3 = || Some(v1::Vec3 { x, y: x, z: x });
        let lattice = || v1::Lattice { origin: vec3(), cell_size: x };
        let [a, b, c, d, e] = counts;
        let table =
            v1::InitializeHeader { particles: a, stable_dt: x, triangles: b, bodies: d % 2 == 1, ..Default::default() };
        let columns = read(Table::room(&table, &known));
        if let Ok(table) = Table::decode(table, columns) {
            prop_assert!(table.particles.validate().is_ok());
        }
        let brief = v1::Brief { mass: x, radius: x, speed_max: x, state_hash: b, nearest: c };
        let brief = v1::InitializeHeader { particles: a, stable_dt: x, brief: Some(brief), ..Default::default() };
        let columns = read(Table::room(&brief, &known));
        if let Ok(table) = Table::decode(brief, columns) {
            prop_assert!(table.count() == a && table.particles.is_empty());
        }
        let _ = Survey::from_wire(v1::SurveyRequest { context: context(), lattice: Some(lattice()), margin: x, centres: a % 2 == 0 });
        let _ = Surveyed::decode(v1::SurveyAnswer {}, read(Surveyed::room(&v1::SurveyAnswer {}, &known)));
        let interest = v1::Interest {
            wanted: (c % 5) as i32, lattice: Some(lattice()), margin: x, listed: a, triangles: a % 2 == 0,
            contact_time: x,
            contact_acceleration: x,
        };
        let begin = v1::BeginHeader { context: context(), interest: Some(interest) };
        let columns = read(Begin::room(&begin, &known));
        if let Ok(Begin { interest, .. }) = Begin::decode(begin, columns)
            && let Wanted::Near { margin, .. } = interest.wanted
        {
            prop_assert!((0.0..100.0).contains(&margin));
        }
        let begun = v1::BeginAnswer { particles: a, contacts: b, as_before: d % 2 == 0 };
        if let Ok(batch) = Batch::decode(begun, read(Batch::room(&begun, &known))) {
            prop_assert!(batch.position.iter().all(|position| position.is_finite()));
            prop_assert!(batch.contacts.as_flattened().iter().all(|&place| u64::from(place) < a));
        }
        let integrate = v1::IntegrateHeader {
            context: context(), stage: 1, repetition: (b % 2) as u32, dt: x,
            groups: c as u32, members: d, watched: e, has_occupied: a % 2 == 0,
            forcing: if b % 3 == 0 { x } else { 0.0 },
        };
        let columns = read(Integrate::room(&integrate, &known));
        if let Ok(Integrate { groups: Some(groups), .. }) = Integrate::decode(integrate, columns) {
            prop_assert_eq!(groups.size.iter().sum::<u32>() as usize, groups.member.len());
        }
        let answer = v1::IntegrateAnswer { travel_max: x, bodies: d % 2 == 1 };
        let _ = Integrated::decode(answer, read(Ok(Integrated::room(&answer, c % 4, d % 4))), (a, b), c % 2 == 0);
        let commit = v1::CommitHeader {
            context: context(), tracked: c, next: (d % 2 == 0).then_some(interest), next_within: x,
            groups: (a % 4) as u32, members: b, ..Default::default()
        };
        let columns = read(Commit::room(&commit, &known));
        let _ = Commit::decode(commit, columns);
        let answer = v1::CommitAnswer {
            particles: a, stable_dt: x, momentum: vec3(), angular_momentum: vec3(), mass_moment: vec3(),
            broken: b, born: c, dead: d, next: (e % 2 == 0).then_some(begun), ..Default::default()
        };
        let grids = (e % 9) as usize;
        let columns = read(Committed::room(&answer, &known, grids, a % 4));
        let _ = Committed::decode(answer, columns, grids, a);
        let fields = vec![v1::FieldInfo { name: "density".into(), components: 1 + (b % 3) as u32 }];
        let surface = (e % 2 == 0).then_some(v1::SurfaceInfo { vertices: c, triangles: d, velocities: c % 2 == 0 });
        let frame = v1::FrameAnswer { particles: a, fields, surface, parts: (d % 3 == 0) as u32 };
        let columns = read(Frame::room(&frame, &known));
        if let Ok(frame) = Frame::decode(frame, columns) {
            prop_assert!(frame.id.is_sorted());
            prop_assert!(frame.fields.iter().all(|field| field.2.iter().all(|value| value.is_finite())));
            let MovingSurface { vertices, velocities, triangles } = frame.surface.unwrap_or_default();
            prop_assert!(velocities.is_empty() || velocities.len() == vertices.len());
            prop_assert!(triangles.as_flattened().iter().all(|&corner| (corner as usize) < vertices.len()));
        }
        let _ = Snapshot::decode(v1::SaveAnswer::default(), read(Snapshot::room(&v1::SaveAnswer::default(), &known)));
        let restore = v1::RestoreHeader { context: context(), ..v1::RestoreHeader::default() };
        let columns = read(Restore::room(&restore, &known));
        let _ = Restore::decode(restore, columns);
        prop_assert!(HEAP.peak_usage_as_mb() < HEAP_MAX);
    }
}
