//! Random kills of solvers and coordinator, and cuts of the links between them: every run ends with the hash
//! of a run that met none.
//!
//! `AMALGAM_SOAK_SECONDS=7200 cargo test --release --workspace --test soak -- --ignored --nocapture` takes
//! two hours, and two minutes without the variable.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::process::{Folder, repository, signal, stderr};
use support::service::{Service, elsewhere};

const FRAMES: &str = "--frames=2";

/// Processes of the coordinator that a run may take.
const ATTEMPTS_MAX: u32 = 500;

/// Random numbers from a seed that is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn time(&mut self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.below(milliseconds))
    }
}

/// A way to a service that can be cut.
#[derive(Clone)]
struct Link {
    address: String,
    /// Both ends of every connection.
    ends: Arc<Mutex<Vec<TcpStream>>>,
    /// True if nothing gets through, without an error at either end.
    is_frozen: Arc<AtomicBool>,
    /// True if no connection lasts.
    is_cut: Arc<AtomicBool>,
}

impl Link {
    fn new(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        let link = Self { address, ends: Arc::default(), is_frozen: Arc::default(), is_cut: Arc::default() };
        let made = link.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("accepts");
                // A service that was killed refuses; the caller sees its connection end.
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let twice = |end: &TcpStream| end.try_clone().expect("clones");
                made.ends.lock().expect("no panic").extend([twice(&near), twice(&far)]);
                if made.is_cut.load(Ordering::SeqCst) {
                    made.end();
                }
                for (from, to) in [(twice(&near), twice(&far)), (far, near)] {
                    let link = made.clone();
                    std::thread::spawn(move || link.pass(from, to));
                }
            }
        });
        link
    }

    /// Passes on what comes, to the end of the connection.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while self.is_frozen.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // Fails where the connection has ended already.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Ends all connections.
    fn end(&self) {
        for end in self.ends.lock().expect("no panic").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn cut(&self, time: Duration) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.end();
        std::thread::sleep(time);
        self.is_cut.store(false, Ordering::SeqCst);
    }

    fn freeze(&self, time: Duration) {
        self.is_frozen.store(true, Ordering::SeqCst);
        std::thread::sleep(time);
        self.is_frozen.store(false, Ordering::SeqCst);
    }
}

/// Number of times that each action was taken.
#[derive(Debug, Default)]
struct Counts {
    runs: u32,
    links_cut: u32,
    links_frozen: u32,
    solvers_killed: u32,
    solvers_stopped: u32,
    coordinators_killed: u32,
    resumed: u32,
    begun_anew: u32,
}

struct Soak {
    folder: Folder,
    scene: std::path::PathBuf,
    services: [(&'static str, Option<Service>, String); 2],
    links: [Link; 2],
    random: Random,
    counts: Counts,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let folder = Folder::new();
        let services = ["solid", "fluid"].map(|solver| {
            let service = Service::start(solver, "127.0.0.1:0", &[]);
            let address = service.address.clone();
            (solver, Some(service), address)
        });
        let links = services.each_ref().map(|(_, _, address)| Link::new(address.clone()));
        let addresses: Vec<(&str, &str)> = services
            .iter()
            .zip(&links)
            .map(|((solver, _, _), link)| (*solver, link.address.as_str()))
            .collect();
        let scene = elsewhere(&folder, &addresses);
        Self { folder, scene, services, links, random: Random(seed), counts: Counts::default() }
    }

    /// The coordinator: from a checkpoint if there is one.
    fn start(&mut self) -> Child {
        let patience = ["--quiet", "--threads=1", "--wait=30s", "--reconnect=30s"];
        let checkpoints = std::fs::read_dir(self.folder.out().join("checkpoints"));
        let is_whole = |entry: std::fs::DirEntry| entry.path().extension().is_none();
        let mut command = if checkpoints.is_ok_and(|entries| entries.flatten().any(is_whole)) {
            self.counts.resumed += 1;
            let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
            command.arg("resume").arg(self.folder.out()).args(patience);
            command
        } else {
            self.counts.begun_anew += 1;
            let how = ["--checkpoint-every=10steps", FRAMES, "--set=coupling.step_deadline=1"];
            let mut command = self.folder.command(&self.scene, &patience);
            command.args(how);
            command
        };
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts")
    }

    /// Kills or stops somebody, or cuts a link.
    fn disturb(&mut self, coordinator: u32) {
        let which = self.random.below(2) as usize;
        let pause = self.random.time(500);
        match self.random.below(12) {
            0 => {
                self.counts.coordinators_killed += 1;
                signal(coordinator, "KILL");
            }
            1 | 2 => {
                self.counts.solvers_stopped += 1;
                let solver = self.services[which].1.as_ref().expect("it runs").child.id();
                signal(solver, "STOP");
                std::thread::sleep(pause * 4);
                signal(solver, "CONT");
            }
            3 | 4 => {
                self.counts.links_cut += 1;
                self.links[which].cut(pause * 4);
            }
            5 | 6 => {
                self.counts.links_frozen += 1;
                self.links[which].freeze(pause * 4);
            }
            _ => {
                self.counts.solvers_killed += 1;
                let (solver, service, address) = &mut self.services[which];
                drop(service.take());
                std::thread::sleep(pause);
                *service = Some(Service::start(solver, address, &[]));
            }
        }
    }

    /// Computes the scene to its end among disturbances, and returns its hash.
    fn run(&mut self) -> serde_json::Value {
        // Checkpoints of the run before are of this one's beginning, too.
        let _ = std::fs::remove_dir_all(self.folder.out());
        for _ in 0..ATTEMPTS_MAX {
            let mut coordinator = self.start();
            let status = loop {
                std::thread::sleep(self.random.time(3000));
                match coordinator.try_wait().expect("waits") {
                    Some(status) => break status,
                    None => self.disturb(coordinator.id()),
                }
            };
            let output = coordinator.wait_with_output().expect("ends");
            if status.success() {
                self.counts.runs += 1;
                return self.folder.summary()["state_hash"].clone();
            }
            // Killed by us, or given up after too many losses: never anything else.
            let text = stderr(&output);
            let is_known = status.code().is_none()
                || ["it came no step farther", "was lost in", "cannot be reached", "cannot go back"]
                    .iter()
                    .any(|reason| text.contains(reason));
            assert!(is_known, "{status}: {text}");
        }
        panic!("the run did not come to its end in {ATTEMPTS_MAX} attempts");
    }
}

#[test]
#[ignore = "minutes: AMALGAM_SOAK_SECONDS says how long"]
fn random_kills_leave_the_hash_as_it_is() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seconds: u64 = number("AMALGAM_SOAK_SECONDS").unwrap_or(120);
    let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_nanos() as u64;
    let seed: u64 = number("AMALGAM_SOAK_SEED").unwrap_or(now | 1);
    println!("seed {seed}, {seconds} s");
    let folder = Folder::new();
    let output = folder.run(&repository("scenes/small/drop.toml"), &["--quiet", "--threads=1", FRAMES]);
    assert!(output.status.success(), "{}", stderr(&output));
    let undisturbed = folder.summary()["state_hash"].clone();
    let (since, mut soak) = (Instant::now(), Soak::new(seed));
    while since.elapsed() < Duration::from_secs(seconds) {
        assert_eq!(soak.run(), undisturbed, "{:?}", soak.counts);
    }
    println!("{:?}, each with hash {undisturbed}", soak.counts);
}
