//! Messages that break the contract, and messages that only look odd.

use std::time::{Duration, Instant};

use amalgam_proto::{Packet as _, v1};
use bytemuck::NoUninit;
use futures_util::{StreamExt as _, stream};
use tonic::Code;

use super::rule::{Rule, rule};
use crate::bench::{Ask, Bench, End, interest, refused};
use crate::verdict::{Check, Stop, broken, demand};

pub(super) const RULES: &[Rule] = &[
    rule(
        "not-a-number",
        "Columns",
        "Numbers that are not finite are refused with INVALID_ARGUMENT.",
        not_a_number,
    ),
    rule("lengths", "Columns", "A column of another length than the header says is refused.", lengths),
    rule(
        "group-sizes",
        "Integrate",
        "Sizes of groups are at least 1 and add up to the members.",
        group_sizes,
    ),
    rule(
        "unknown-ids",
        "Columns",
        "Ids that no particle has, and ids that stand twice, are refused.",
        unknown_ids,
    ),
    rule("time-steps", "Limits", "`dt` from 1e-30 to 1e15 s is taken, and nothing else.", time_steps),
    rule(
        "header-first",
        "Columns",
        "The first message of a stream has the header, and no other has.",
        header_first,
    ),
    rule(
        "pieces",
        "Columns",
        "Pieces of a column are put together in the order in which they arrive.",
        pieces,
    ),
    rule(
        "refused-at-once",
        "Columns",
        "A column that the header does not call for is refused while the stream is still open.",
        refused_at_once,
    ),
    rule(
        "message-size",
        "Limits",
        "A message of more than 4 MiB is refused, and the service goes on.",
        message_size,
    ),
    rule("refusals", "Errors", "Calls that were refused change nothing.", refusals),
];

const INVALID: Code = Code::InvalidArgument;

/// A run that has begun a step, with a group.
fn begun(bench: &mut Bench<'_>) -> Result<Ask, Stop> {
    bench.start()?;
    bench.begin()?;
    bench.pair()
}

/// Replaces a column of a message, or adds it.
fn put<T: NoUninit>(columns: &mut Vec<v1::Column>, name: &str, values: &[T]) {
    columns.retain(|column| column.name != name);
    let data = bytes::Bytes::copy_from_slice(bytemuck::cast_slice(values));
    columns.push(v1::Column { name: name.into(), data });
}

fn integrate_wrong(
    bench: &mut Bench<'_>,
    what: &str,
    change: impl FnOnce(&mut v1::IntegrateRequest),
) -> Check {
    let ask = bench.pair()?;
    let answer = bench.integrate_with(&ask, |packets| change(&mut packets[0]));
    refused(answer, INVALID, &format!("Integrate with {what}"))
}

fn commit_wrong(
    bench: &mut Bench<'_>,
    (ask, end): (&Ask, &End),
    what: &str,
    change: impl FnOnce(&mut v1::CommitRequest),
) -> Check {
    let answer = bench.try_commit(ask, end, |packets| change(&mut packets[0]));
    refused(answer, INVALID, &format!("Commit with {what}"))
}

/// Integrates, for a Commit to follow.
fn integrated(bench: &mut Bench<'_>) -> Result<(Ask, End), Stop> {
    let ask = bench.pair()?;
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    Ok((ask, end))
}

fn not_a_number(bench: &mut Bench<'_>) -> Check {
    begun(bench)?;
    let nan = [f64::NAN, 0.0, 0.0];
    integrate_wrong(bench, "a velocity that is no number", |packet| {
        put(&mut packet.columns, "velocity", &nan)
    })?;
    integrate_wrong(bench, "an impulse that is no number", |packet| {
        put(&mut packet.columns, "impulse", &nan)
    })?;
    integrate_wrong(bench, "an infinite impulse", |packet| {
        put(&mut packet.columns, "impulse", &[0.0, f64::INFINITY, 0.0]);
    })?;
    integrate_wrong(bench, "an inertia that is no number", |packet| {
        put(&mut packet.columns, "inertia", &[f64::NAN]);
    })?;
    integrate_wrong(bench, "an inertia below 0", |packet| put(&mut packet.columns, "inertia", &[-1.0]))?;
    let (ask, end) = integrated(bench)?;
    commit_wrong(bench, (&ask, &end), "a group's velocity that is no number", |packet| {
        put(&mut packet.columns, "group_velocity", &nan);
    })?;
    let members = ask.groups.member.len();
    commit_wrong(bench, (&ask, &end), "members' velocities that are no numbers", |packet| {
        put(&mut packet.columns, "member_velocity", &vec![f64::NAN; 3 * members]);
    })?;
    bench.commit(&ask, &end).map(drop)
}

fn lengths(bench: &mut Bench<'_>) -> Check {
    begun(bench)?;
    integrate_wrong(bench, "an impulse of four numbers", |packet| {
        put(&mut packet.columns, "impulse", &[0.0; 4])
    })?;
    integrate_wrong(bench, "a velocity of half the bytes", |packet| {
        put(&mut packet.columns, "velocity", &[0u8; 12])
    })?;
    integrate_wrong(bench, "a second inertia", |packet| put(&mut packet.columns, "inertia", &[1.0, 1.0]))?;
    integrate_wrong(bench, "no inertia", |packet| packet.columns.retain(|column| column.name != "inertia"))?;
    integrate_wrong(bench, "a column that nobody knows", |packet| {
        put(&mut packet.columns, "colour", &[1u8])
    })?;
    let (ask, end) = integrated(bench)?;
    commit_wrong(bench, (&ask, &end), "a member's velocity too few", |packet| {
        put(&mut packet.columns, "member_velocity", &[0.0; 2]);
    })?;
    commit_wrong(bench, (&ask, &end), "no group", |packet| {
        if let Some(header) = &mut packet.header {
            (header.groups, header.members) = (0, 0);
        }
        packet.columns.clear();
    })?;
    bench.commit(&ask, &end).map(drop)
}

fn group_sizes(bench: &mut Bench<'_>) -> Check {
    begun(bench)?;
    integrate_wrong(bench, "a group of nobody", |packet| put(&mut packet.columns, "group_size", &[0u32]))?;
    integrate_wrong(bench, "sizes beyond the members", |packet| {
        put(&mut packet.columns, "group_size", &[9u32])
    })?;
    integrate_wrong(bench, "stage 0", |packet| packet.header.iter_mut().for_each(|header| header.stage = 0))
}

fn unknown_ids(bench: &mut Bench<'_>) -> Check {
    begun(bench)?;
    let none = bench.ids().iter().map(|id| id.0).max().unwrap_or(0) + 1_000_000;
    let ask = bench.pair()?;
    let mut members: Vec<u64> = ask.groups.member.iter().map(|id| id.0).collect();
    let (first, count) = (std::mem::replace(&mut members[0], none), members.len());
    integrate_wrong(bench, "a member that is unknown", |packet| {
        put(&mut packet.columns, "member", &members)
    })?;
    integrate_wrong(bench, "an id of 2^48", |packet| {
        put(&mut packet.columns, "member", &vec![1u64 << 48; count]);
    })?;
    if count > 1 {
        integrate_wrong(bench, "a member that stands twice", |packet| {
            put(&mut packet.columns, "member", &vec![first; count]);
        })?;
    }
    integrate_wrong(bench, "a watched particle that is unknown", |packet| {
        packet.header.iter_mut().for_each(|header| header.watched = 1);
        put(&mut packet.columns, "watch", &[none]);
    })?;
    let listed = interest(amalgam_proto::contract::Wanted::Listed(vec![amalgam_particles::ParticleId(none)]));
    bench.start()?;
    refused(bench.begin_for(listed), INVALID, "Begin with a listed particle that is unknown")?;
    bench.begin()?;
    let (ask, end) = integrated(bench)?;
    commit_wrong(bench, (&ask, &end), "a tracked particle that is unknown", |packet| {
        packet.header.iter_mut().for_each(|header| header.tracked = 1);
        put(&mut packet.columns, "track", &[none]);
    })?;
    bench.commit(&ask, &end).map(drop)
}

fn time_steps(bench: &mut Bench<'_>) -> Check {
    begun(bench)?;
    for dt in [0.0, -1e-3, f64::NAN, f64::INFINITY, 1e-31, 1e16] {
        integrate_wrong(bench, &format!("dt {dt:e}"), |packet| {
            packet.header.iter_mut().for_each(|header| header.dt = dt);
        })?;
    }
    Ok(())
}

fn header_first(bench: &mut Bench<'_>) -> Check {
    let ask = begun(bench)?;
    let answer = bench.integrate_with(&ask, |packets| packets[0].header = None);
    refused(answer, INVALID, "Integrate without a header")?;
    let answer = bench.integrate_with(&ask, |packets| {
        let header = packets[0].header.clone();
        packets.push(v1::IntegrateRequest { header, columns: Vec::new() });
    });
    refused(answer, INVALID, "Integrate with two headers")?;
    refused(bench.integrate_with(&ask, Vec::clear), INVALID, "Integrate without a message")
}

fn pieces(bench: &mut Bench<'_>) -> Check {
    let ask = begun(bench)?;
    let whole = bench.integrate(&ask)?;
    bench.start()?;
    bench.begin()?;
    // Five bytes at a time, so that most pieces end inside numbers; columns take turns.
    let cut = bench.integrate_with(&ask, |packets| {
        let (header, columns) = packets.remove(0).split();
        packets.push(v1::IntegrateRequest { header, columns: Vec::new() });
        let longest = columns.iter().map(|column| column.data.len()).max().unwrap_or(0);
        for start in (0..longest).step_by(5).take(2000) {
            let end = |column: &v1::Column| {
                if start + 5 > 9995 { column.data.len() } else { (start + 5).min(column.data.len()) }
            };
            let piece = |column: &v1::Column| {
                let data = column.data.slice(start.min(column.data.len())..end(column));
                v1::Column { name: column.name.clone(), data }
            };
            let columns = columns.iter().filter(|column| start < column.data.len()).map(piece).collect();
            packets.push(v1::IntegrateRequest { header: None, columns });
        }
    })?;
    demand(cut == whole, || "the same columns, cut in pieces, get another answer".into())
}

/// Time within which a refusal comes while the caller has not finished.
const AT_ONCE: Duration = Duration::from_secs(20);

fn refused_at_once(bench: &mut Bench<'_>) -> Check {
    let ask = begun(bench)?;
    let mut packets = bench.integrate_packets(&ask);
    let data = bytes::Bytes::from(vec![0u8; 1 << 10]);
    packets[0].columns.push(v1::Column { name: "nobody_asked".into(), data });
    let text = crate::shown::messages(&packets);
    let open = stream::iter(packets)
        .chain(stream::once(async { tokio::time::sleep(AT_ONCE).await }).filter_map(async |()| None));
    let start = Instant::now();
    let answer = bench.wire.integrate(Box::pin(open), text, ((1, ask.groups.watch.len() as u64), false));
    refused(answer, INVALID, "Integrate with a column that the header does not call for")?;
    demand(start.elapsed() < AT_ONCE / 2, || {
        "the column was refused only when the stream had ended: until then it takes memory".into()
    })
}

fn message_size(bench: &mut Bench<'_>) -> Check {
    let ask = begun(bench)?;
    let answer = bench.integrate_with(&ask, |packets| {
        let data = bytes::Bytes::from(vec![0u8; 5 << 20]);
        packets[0].columns.push(v1::Column { name: "impulse".into(), data });
    });
    if answer.is_ok() {
        return broken("a message of 5 MiB is answered");
    }
    bench.integrate(&ask)?;
    Ok(())
}

fn refusals(bench: &mut Bench<'_>) -> Check {
    let run = |bench: &mut Bench<'_>, is_disturbed: bool| -> Result<u64, Stop> {
        let ask = begun(bench)?;
        bench.integrate(&ask)?;
        if is_disturbed {
            integrate_wrong(bench, "an impulse that is no number", |packet| {
                put(&mut packet.columns, "impulse", &[f64::NAN; 3]);
            })?;
        }
        // After a refused Integrate, stage 1 comes again.
        let (ask, end) = integrated(bench)?;
        if is_disturbed {
            commit_wrong(bench, (&ask, &end), "a member's velocity too few", |packet| {
                put(&mut packet.columns, "member_velocity", &[0.0; 2]);
            })?;
            commit_wrong(bench, (&ask, &end), "a velocity that is no number", |packet| {
                put(&mut packet.columns, "group_velocity", &[f64::NAN; 3]);
            })?;
        }
        bench.commit(&ask, &end)?;
        Ok(bench.step()?.state_hash)
    };
    let (plain, disturbed) = (run(bench, false)?, run(bench, true)?);
    demand(plain == disturbed, || {
        format!("after refused calls the run ends with state hash {disturbed:016x} in place of {plain:016x}")
    })
}
