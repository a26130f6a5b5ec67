//! A switch between interfaces of one network namespace, in user space: with delay, a rate and losses, for
//! kernels without netem.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket};

/// Properties of the switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// Time from the end of a frame's sending to its arrival.
    pub(crate) delay: Duration,
    /// Speed of each interface, if it is limited [bytes/s].
    pub(crate) rate: Option<f64>,
    /// Number of frames of which one is lost; `None` if none is lost.
    pub(crate) one_lost_in: Option<u64>,
}

/// A frame that waits for its time: due, order of arrival, interface, bytes.
type Waiting = Reverse<(Instant, u64, usize, Vec<u8>)>;

/// Passes frames on between interfaces, until the process ends.
pub(crate) fn serve(interfaces: &[&str], wire: Wire) {
    let ports: Arc<[OwnedFd]> = interfaces.iter().map(|name| open(name)).collect();
    let (sender, frames) = mpsc::channel();
    for port in 0..ports.len() {
        let (ports, sender) = (Arc::clone(&ports), sender.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = recv(ports[port].as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap_or(0);
                if length >= 14 && sender.send((port, buffer[..length].to_vec())).is_err() {
                    return;
                }
            }
        });
    }
    let (mut homes, mut free) = (HashMap::new(), vec![Instant::now(); ports.len()]);
    let (mut waiting, mut number) = (BinaryHeap::<Waiting>::new(), 0u64);
    loop {
        let due = waiting.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        match frames.recv_timeout(due.unwrap_or(Duration::from_secs(1))) {
            Ok((from, mut frame)) => {
                number += 1;
                homes.insert(frame[6..12].to_vec(), from);
                if wire.one_lost_in.is_some_and(|count| is_lost(number, count)) {
                    continue;
                }
                complete(&mut frame);
                let home = homes.get(&frame[..6]).copied();
                for to in (0..ports.len()).filter(|to| *to != from && home.is_none_or(|home| home == *to)) {
                    let start = free[to].max(Instant::now());
                    let seconds = wire.rate.map_or(0.0, |rate| frame.len() as f64 / rate);
                    free[to] = start + Duration::from_secs_f64(seconds);
                    waiting.push(Reverse((free[to] + wire.delay, number, to, frame.clone())));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => (),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        while waiting.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
            let Some(Reverse((_, _, to, frame))) = waiting.pop() else { break };
            // A link that is down loses what is sent to it.
            let _ = send(ports[to].as_raw_fd(), &frame, MsgFlags::empty());
        }
    }
}

/// True if a frame is lost: about one in `count`, the same ones in each run.
fn is_lost(number: u64, count: u64) -> bool {
    // SplitMix64.
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)).is_multiple_of(count)
}

/// A socket for all frames that come to an interface.
fn open(interface: &str) -> OwnedFd {
    let addresses = getifaddrs().expect("lists the interfaces");
    let link = addresses
        .filter(|one| one.interface_name == interface)
        .find_map(|one| one.address?.as_link_addr().copied())
        .unwrap_or_else(|| panic!("no interface {interface}"));
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll);
    let fd = fd.expect("a packet socket");
    bind(fd.as_raw_fd(), &link).expect("binds");
    fd
}

/// Fills in the checksum of TCP and UDP, which virtual interfaces leave to a card that never comes.
fn complete(frame: &mut [u8]) {
    let (header, protocol, addresses) = match (&frame[12..14], frame.get(14)) {
        ([0x08, 0x00], Some(first)) if frame.len() >= 34 => {
            (14 + 4 * usize::from(first & 15), frame[23], 26..34)
        }
        ([0x86, 0xdd], Some(_)) if frame.len() >= 54 => (54, frame[20], 22..54),
        _ => return,
    };
    let end = match frame[12] {
        0x08 => 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]])),
        _ => 54 + usize::from(u16::from_be_bytes([frame[18], frame[19]])),
    };
    let field = header
        + match protocol {
            6 => 16,
            17 => 6,
            _ => return,
        };
    if end > frame.len() || field + 2 > end {
        return;
    }
    frame[field..field + 2].fill(0);
    let mut sum = u64::from(protocol) + (end - header) as u64;
    for part in [&frame[addresses], &frame[header..end]] {
        for pair in part.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !(sum as u16) {
        0 if protocol == 17 => 0xffff,
        checksum => checksum,
    };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}
