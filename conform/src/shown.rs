//! Messages as people read them: the header, then each column with its first values.

use std::fmt::Debug;

use amalgam_proto::{Packet, v1};

/// Characters of a header that are shown.
const HEADER_LENGTH_MAX: usize = 600;

/// Values of a column that are shown.
const VALUES_MAX: usize = 4;

/// A message without columns.
pub(crate) fn message(message: &impl Debug) -> String {
    cut(&format!("{message:?}"))
}

/// The messages of a stream as one: the headers, and the columns put together.
pub(crate) fn messages<P: Packet + Debug + Clone>(packets: &[P]) -> String
where
    P::Header: Debug,
{
    let mut lines = Vec::new();
    let mut columns: Vec<v1::Column> = Vec::new();
    for packet in packets {
        let (header, pieces) = packet.clone().split();
        lines.extend(header.map(|header| cut(&format!("{header:?}"))));
        for piece in pieces {
            match columns.iter_mut().find(|column| column.name == piece.name) {
                Some(column) if column.data.len() < FIRST_BYTES => {
                    column.data = [&column.data[..], &piece.data[..]].concat().into();
                }
                Some(_) => {}
                None => columns.push(piece),
            }
        }
    }
    lines.extend(columns.iter().map(column));
    if lines.is_empty() { "no message".into() } else { lines.join("\n") }
}

/// Bytes of a column that are enough to show its first values.
const FIRST_BYTES: usize = 256;

/// Type of the values of a column.
enum Kind {
    U8,
    U32(usize),
    U64(usize),
    F32,
    F64(usize),
    Bytes,
}

fn kind(name: &str) -> Kind {
    match name {
        "id" | "body" | "listed" | "member" | "watch" | "track" | "born_id" | "dead" | "released_id" => {
            Kind::U64(1)
        }
        "triangles" => Kind::U64(3),
        "contacts" => Kind::U32(2),
        "group_size" | "group_number" | "group" => Kind::U32(1),
        "surface_triangles" => Kind::U32(3),
        "immovable" | "born_immovable" => Kind::U8,
        "mass" | "radius" | "inertia" | "body_mass" | "born_mass" | "born_radius" | "released_mass" => {
            Kind::F64(1)
        }
        "slope" | "body_inertia" => Kind::F64(6),
        name if name.starts_with("field_") => Kind::F32,
        name if name.contains("cells") || ["interest", "occupied", "snapshot"].contains(&name) => Kind::Bytes,
        _ => Kind::F64(3),
    }
}

fn column(column: &v1::Column) -> String {
    let data = &column.data[..];
    let (values, stride) = match kind(&column.name) {
        Kind::U8 => (tuples(data, 1, 1, |bytes| bytes[0].to_string()), 1),
        Kind::U32(n) => (tuples(data, 4, n, |bytes| u32::from_le_bytes(array(bytes)).to_string()), 4 * n),
        Kind::U64(n) => (tuples(data, 8, n, |bytes| u64::from_le_bytes(array(bytes)).to_string()), 8 * n),
        Kind::F32 => (tuples(data, 4, 1, |bytes| f32::from_le_bytes(array(bytes)).to_string()), 4),
        Kind::F64(n) => {
            (tuples(data, 8, n, |bytes| format!("{:?}", f64::from_le_bytes(array(bytes)))), 8 * n)
        }
        Kind::Bytes => (tuples(data, 1, 1, |bytes| format!("{:02x}", bytes[0])), 1),
    };
    let more = if data.len() / stride > VALUES_MAX { ", ..." } else { "" };
    format!("{} [{}{more}]", cut(&column.name), values.join(", "))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|k| bytes[k])
}

/// The first values of a column; each has `parts` numbers of `width` bytes.
fn tuples(data: &[u8], width: usize, parts: usize, number: impl Fn(&[u8]) -> String) -> Vec<String> {
    let values = data.chunks_exact(width * parts).take(VALUES_MAX);
    let text = |value: &[u8]| value.chunks_exact(width).map(&number).collect::<Vec<_>>().join(", ");
    values.map(|value| if parts > 1 { format!("({})", text(value)) } else { text(value) }).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(HEADER_LENGTH_MAX) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shown_as_their_values() {
        let shown = |name: &str, data: Vec<u8>| column(&v1::Column { name: name.into(), data: data.into() });
        let ids: Vec<u8> = (0..6u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(shown("member", ids), "member [0, 1, 2, 3, ...]");
        let vector: Vec<u8> = [1.0, -0.5, f64::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(shown("momentum", vector), "momentum [(1.0, -0.5, NaN)]");
    }
}
