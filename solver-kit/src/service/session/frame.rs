//! Frames: sent as columns, or written as files, one per rank.

use std::path::Path;

use amalgam_frames::{Compression, FrameData, FrameField, FrameValues, write_vtu};
use amalgam_proto::contract::{AskFrame, Frame, FrameFiles, Written};

use super::answers::{InOrder, ascending};
use super::files::Files;
use super::run::Run;
use super::{Refusal, agreed};
use crate::error::SolverError;
use crate::joined::concatenated;
use crate::solver::{Field, FieldValues};

impl Run {
    /// The particles as columns or, if files are asked for and allowed on all ranks, in files. Collective.
    pub(super) fn frame(&mut self, ask: &AskFrame, files: &Files) -> Result<Frame, Refusal> {
        if let Some(wanted) = &ask.files
            && !ask.surface
            && files.are_wanted(&self.ranks, &wanted.folder)
        {
            let written = self.write_frame(wanted).map_err(Refusal::from);
            return agreed(&self.ranks, written);
        }
        let surface = ask.surface.then(|| self.solver.surface()).flatten();
        Ok(Frame { surface, ..self.columns_of_frame()? })
    }

    /// Writes the particles of this rank. Collective.
    fn write_frame(&mut self, files: &FrameFiles) -> Result<Frame, SolverError> {
        let fields = self.solver.fields();
        let particles = self.solver.particles();
        let mut described = Vec::new();
        let mut values = Vec::new();
        for Field { name, values: field } in &fields {
            let (components, numbers, data) = match field {
                FieldValues::Scalar(field) => (1, &field[..], FrameValues::Scalar(field)),
                FieldValues::Vector(field) => (3, field.as_flattened(), FrameValues::Vector(field)),
            };
            check_field(name, components, numbers, |at| particles.id[at].0)?;
            described.push((name.to_string(), components as u32, Vec::new()));
            values.push(FrameField { name, values: data });
        }
        let data = FrameData {
            time: files.time,
            positions: &particles.position,
            ids: bytemuck::cast_slice(&particles.id),
            velocities: &particles.velocity,
            groups: &self.group_number,
            radii: Some(&particles.radius),
            triangles: &[],
            fields: &values,
        };
        let compression = if files.compressed { Compression::Zlib } else { Compression::None };
        let path = Path::new(&files.folder).join(files.name_of(self.ranks.rank() as u32));
        write_vtu(path, &data, compression).map_err(|error| SolverError(error.to_string()))?;
        let written = Written { parts: self.ranks.size() as u32, particles: self.count };
        Ok(Frame { fields: described, written: Some(written), ..Frame::default() })
    }

    /// The particles of all ranks, at the first one. Collective.
    fn columns_of_frame(&mut self) -> Result<Frame, SolverError> {
        let fields = self.solver.fields();
        let particles = self.solver.particles();
        let order = ascending(&concatenated(&self.ranks, &particles.id));
        let by_id = InOrder { ranks: &self.ranks, order: &order };
        let fields = fields.into_iter().map(|field| match field.values {
            FieldValues::Scalar(values) => (field.name.to_string(), 1, by_id.column(&values)),
            FieldValues::Vector(values) => {
                (field.name.to_string(), 3, by_id.column(&values).into_flattened())
            }
        });
        let frame = Frame {
            id: by_id.column(&particles.id),
            position: by_id.column(&particles.position),
            velocity: by_id.column(&particles.velocity),
            radius: by_id.column(&particles.radius),
            group: by_id.column(&self.group_number),
            fields: fields.collect(),
            ..Frame::default()
        };
        for (name, components, values) in &frame.fields {
            check_field(name, *components as usize, values, |at| frame.id[at].0)?;
        }
        Ok(frame)
    }
}

/// Refuses values of a field that are not finite. `id` gives the id of a particle.
fn check_field(
    name: &str,
    components: usize,
    values: &[f32],
    id: impl Fn(usize) -> u64,
) -> Result<(), SolverError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let (id, value) = (id(at / components), values[at]);
            Err(SolverError(format!("field {name} of particle {id} is {value}: the solver is unstable")))
        }
    }
}
