//! Three hosts in network namespaces, with certificates, and between them a switch that delays and loses
//! frames and whose links are cut: the bits of one process. Needs no privileges; skipped with a message where
//! a user may not make namespaces.

mod support;
#[path = "support/switch.rs"]
mod switch;

use std::process::Command;
use std::time::{Duration, Instant};

use support::process::{Folder, repository, stderr};
use switch::{Wire, serve};

const DROP: &str = "scenes/small/drop.toml";

/// Makes three hosts with interfaces at the switch `$SWITCH`, runs a solver on two of them and the
/// coordinator on the third, and cuts the second solver's link for `$CUT` seconds in the middle of the run.
const HOSTS: &str = r#"
set -e
trap 'kill $all 2> /dev/null || true' EXIT
ip link set lo up || exit 77
for i in 1 2 3; do
    unshare -n sleep 600 & host=$!
    all="$all $host"; eval host$i=$host
    until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
    ip link add v$i type veth peer name eth0 netns $host
    nsenter -t $host -n sh -e -c "
        ip link set lo up
        ip addr add 10.77.0.$i/24 dev eth0
        ip addr add fd00::$i/64 dev eth0 nodad
        ip link set eth0 gso_max_segs 1 up
        echo reno > /proc/sys/net/ipv4/tcp_congestion_control || true"
    ip link set v$i up
done
$SWITCH > "$OUT.switch" 2>&1 & all="$all $!"
program=$1; scene=$2; shift 2
serve() {
    nsenter -t $1 -n "$program" serve $2 --threads 1 --listen "$3" --register "$REGISTRY" --name $4 --tls "$CERTS" \
        > "$OUT.$4" 2>&1 & all="$all $!"
}
serve $host2 solid "$LISTEN2" cloth
serve $host3 fluid "$LISTEN3" water
nsenter -t $host1 -n "$program" run "$scene" --out "$OUT" --registry "$REGISTRY" --tls "$CERTS" --wait 60s "$@" & run=$!
all="$all $run"
if [ "$CUT" != 0 ]; then
    until ls "$OUT/checkpoints" 2> /dev/null | grep -q 'step-0000[1-9]'; do sleep 0.01; kill -0 $run; done
    ip link set v3 down
    sleep $CUT
    ip link set v3 up
fi
wait $run
"#;

/// The switch, as a process: this test binary with a word in its environment. Does nothing else.
#[test]
fn switches() {
    let Ok(text) = std::env::var("SWITCH_WIRE") else { return };
    let mut parts = text.split(',').map(|part| part.parse::<f64>().expect("a number"));
    let mut next = || parts.next().expect("three numbers");
    let wire = Wire {
        delay: Duration::from_secs_f64(next()),
        rate: Some(next()).filter(|rate| *rate > 0.0),
        one_lost_in: Some(next() as u64).filter(|count| *count > 0),
    };
    serve(&["v1", "v2", "v3"], wire);
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Delay one way [ms].
    delay_ms: f64,
    /// 0 for as much as goes [Mbit/s].
    rate: f64,
    one_lost_in: u64,
    cut: f64,
    ipv6: bool,
    arguments: &'static [&'static str],
}

const PLAIN: Case =
    Case { name: "plain", delay_ms: 0.0, rate: 0.0, one_lost_in: 0, cut: 0.0, ipv6: false, arguments: &[] };

/// Runs the scene on three hosts; nothing where a user may not make them. Says how many seconds it took.
fn on_three_hosts(case: Case, frames: &str) -> Option<(Folder, f64)> {
    let folder = Folder::new();
    let certs = folder.path().join("certs");
    let hosts = "--hosts=10.77.0.1,10.77.0.2,10.77.0.3,fd00::1,fd00::2,fd00::3";
    let made = Command::new(env!("CARGO_BIN_EXE_amalgam")).arg("certs").arg(&certs).arg(hosts).output();
    assert!(made.expect("starts").status.success());
    let (registry, listen) = match case.ipv6 {
        true => ("[fd00::1]:7400", ["[fd00::2]:0", "[fd00::3]:0"]),
        false => ("10.77.0.1:7400", ["10.77.0.2:0", "0.0.0.0:0"]),
    };
    let switch = std::env::current_exe().expect("a path");
    let wire = format!("{},{},{}", case.delay_ms / 1e3, case.rate * 1e6 / 8.0, case.one_lost_in);
    let since = Instant::now();
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        HOSTS,
        "sh",
        env!("CARGO_BIN_EXE_amalgam"),
    ]);
    command.arg(repository(DROP)).args(["--quiet", frames]).args(case.arguments);
    command.env("OUT", folder.out()).env("CERTS", &certs).env("REGISTRY", registry);
    command.env("LISTEN2", listen[0]).env("LISTEN3", listen[1]).env("CUT", case.cut.to_string());
    command
        .env("SWITCH", format!("{} --exact switches --nocapture", switch.display()))
        .env("SWITCH_WIRE", wire);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: unshare cannot be run: {error}");
            return None;
        }
    };
    if output.status.code() == Some(77) || (!folder.out().exists() && stderr(&output).contains("unshare")) {
        println!("skipped: no networks of a user's own here: {}", stderr(&output));
        return None;
    }
    let of = |name: &str| {
        std::fs::read_to_string(format!("{}.{name}", folder.out().display())).unwrap_or_default()
    };
    let logs = format!("{}\n{}\n{}\n{}", stderr(&output), of("cloth"), of("water"), of("switch"));
    assert!(output.status.success(), "{}: {logs}", case.name);
    Some((folder, since.elapsed().as_secs_f64()))
}

fn undisturbed(frames: &str) -> serde_json::Value {
    let folder = Folder::new();
    let output = folder.run(&repository(DROP), &["--quiet", frames, "--transport=in-process"]);
    assert!(output.status.success(), "{}", stderr(&output));
    folder.summary()["state_hash"].clone()
}

fn compare(cases: &[Case], frames: &str) {
    let expected = undisturbed(frames);
    for &case in cases {
        let Some((folder, seconds)) = on_three_hosts(case, frames) else { return };
        let summary = folder.summary();
        println!(
            "{}: hash {}, {} steps, {seconds:.1} s in all",
            case.name, summary["state_hash"], summary["steps"]
        );
        assert_eq!(summary["state_hash"], expected, "{}", case.name);
    }
}

#[test]
fn three_hosts_compute_the_bits_of_one_process() {
    compare(
        &[
            Case { name: "0.2 ms, 100 Mbit", delay_ms: 0.1, rate: 100.0, ..PLAIN },
            Case { name: "IPv6, 1 % lost", ipv6: true, one_lost_in: 100, ..PLAIN },
        ],
        "--frames=1",
    );
}

/// The whole matrix; it takes minutes.
#[test]
#[ignore = "takes minutes: cargo test --release --workspace --test hosts -- --ignored --nocapture"]
fn slow_networks_and_long_cuts_change_no_bit() {
    const BACK: &[&str] = &["--reconnect=2m", "--checkpoint-every=5steps"];
    compare(
        &[
            PLAIN,
            Case { name: "0.2 ms", delay_ms: 0.1, ..PLAIN },
            Case { name: "2 ms", delay_ms: 1.0, ..PLAIN },
            Case { name: "100 Mbit", rate: 100.0, ..PLAIN },
            Case { name: "1 % lost", delay_ms: 0.1, one_lost_in: 100, ..PLAIN },
            Case { name: "cut of 5 s", cut: 5.0, arguments: &["--checkpoint-every=5steps"], ..PLAIN },
            Case { name: "cut of 20 s", cut: 20.0, arguments: BACK, ..PLAIN },
            Case { name: "IPv6", ipv6: true, ..PLAIN },
        ],
        "--frames=2",
    );
}
