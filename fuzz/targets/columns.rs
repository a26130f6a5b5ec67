//! Any messages as any call or answer: read as the contract says or refused, and within little memory.
#![no_main]

use amalgam_proto::contract::{
    Batch, Begin, Call, Commit, Committed, Frame, Integrate, Integrated, Restore, Snapshot, Survey, Surveyed,
    Table,
};
use amalgam_proto::{Columns, Known, Packet, Room, WireError, v1};
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// Messages behind each other: two bytes of length, then the message.
fn messages<P: Message + Default>(mut bytes: &[u8]) -> Vec<P> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        let Ok(message) = P::decode(message) else { break };
        messages.push(message);
    }
    messages
}

/// The header of the first message, and the columns of all, with the room that the header asks for.
fn joined<P: Packet + Message + Default>(
    bytes: &[u8],
    room: impl FnOnce(&P::Header) -> Result<Room, WireError>,
) -> Option<(P::Header, Columns)> {
    let mut messages = messages::<P>(bytes).into_iter();
    let (header, first) = messages.next()?.split();
    let header = header?;
    let mut columns = Columns::within(room(&header).ok()?);
    columns.append(first).ok()?;
    for message in messages {
        columns.append(message.split().1).ok()?;
    }
    Some((header, columns))
}

fn read<C: Call>(bytes: &[u8]) -> Option<C>
where
    C::Packet: Message + Default,
{
    let (header, columns) = joined::<C::Packet>(bytes, |header| C::room(header, &Known::default()))?;
    C::decode(header, columns).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    match which % 12 {
        0 => {
            if let Some(table) = read::<Table>(bytes) {
                table.particles.validate().expect("a table that was read is sound");
            }
        }
        1 => drop(v1::SurveyRequest::decode(bytes).map(Survey::from_wire)),
        2 => drop(read::<Surveyed>(bytes)),
        3 => drop(read::<Begin>(bytes)),
        4 => {
            if let Some(batch) = read::<Batch>(bytes) {
                assert!(batch.position.iter().all(|position| position.is_finite()));
            }
        }
        5 => {
            if let Some(Integrate { groups: Some(groups), .. }) = read::<Integrate>(bytes) {
                assert_eq!(groups.size.iter().sum::<u32>() as usize, groups.member.len());
            }
        }
        6 => {
            let room = |header: &v1::IntegrateAnswer| Ok(Integrated::room(header, 3, 2));
            for is_repetition in [false, true] {
                if let Some((header, columns)) = joined::<v1::IntegrateResponse>(bytes, room) {
                    let _ = Integrated::decode(header, columns, (3, 2), is_repetition);
                }
            }
        }
        7 => drop(read::<Commit>(bytes)),
        8 => {
            let room = |header: &v1::CommitAnswer| Committed::room(header, &Known::default(), 1, 2);
            if let Some((header, columns)) = joined::<v1::CommitResponse>(bytes, room) {
                let _ = Committed::decode(header, columns, 1, 2);
            }
        }
        9 => {
            if let Some(frame) = read::<Frame>(bytes) {
                assert!(frame.id.is_sorted());
                let surface = frame.surface.unwrap_or_default();
                let vertices = surface.vertices.len();
                assert!(surface.velocities.is_empty() || surface.velocities.len() == vertices);
                assert!(surface.triangles.as_flattened().iter().all(|&corner| (corner as usize) < vertices));
            }
        }
        10 => drop(read::<Snapshot>(bytes)),
        _ => drop(read::<Restore>(bytes)),
    }
});
