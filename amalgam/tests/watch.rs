//! The page that shows a run, as a browser gets it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_amalgam");

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Killing fails only if the program has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scene() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml")
}

/// Two frames of `scenes/small/drop.toml`.
fn run(folder: &Path) {
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(scene()).args(["--frames", "2", "--quiet", "--transport", "in-process", "--out"]);
    assert!(command.arg(folder).status().expect("runs").success());
}

/// Starts `amalgam watch`. Returns it with the page's host and path.
fn watch(folder: &Path) -> (Running, String, String) {
    let (running, address) = started(Command::new(PROGRAM).arg("watch").arg(folder));
    let (host, path) = parts(&address);
    (running, host, path)
}

/// Starts a command. Returns it with the first line that it prints.
fn started(command: &mut Command) -> (Running, String) {
    let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("starts"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    (running, line.trim().to_string())
}

fn parts(address: &str) -> (String, String) {
    let address = address.strip_prefix("http://").expect("an address");
    let (host, path) = address.split_once('/').expect("a path");
    (host.to_string(), format!("/{path}"))
}

/// Status and body of a page.
fn get(host: &str, page: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(host).expect("connects");
    write!(stream, "GET {page} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("sends");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("answers");
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, bytes[end + 4..].to_vec())
}

fn json(host: &str, page: &str) -> Value {
    let (status, body) = get(host, page);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn a_finished_run_is_shown_to_whoever_knows_the_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    run(&out);
    let (_running, host, path) = watch(&out);
    assert_eq!(get(&host, &path).0, 200);
    let run = json(&host, &format!("{path}run.json"));
    assert_eq!((&run["name"], &run["frames"]), (&"drop".into(), &3.into()), "{run}");
    assert_eq!(run["end"]["error"], Value::Null);
    assert!(run["end"]["cautions"].is_array(), "{run}");

    let (status, bytes) = get(&host, &format!("{path}particles/water/2?field=speed&have="));
    assert_eq!(status, 200);
    let length = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    let head: Value = serde_json::from_slice(&bytes[4..4 + length]).expect("a head");
    let frame = amalgam_frames::Frame::read(out.join("frames/water_000002.vtu")).expect("a frame");
    assert_eq!(head["points"], frame.positions.len());
    // Positions are rounded to 1/65535 of the box around them.
    let corner = |end: &str, axis: usize| head[end][axis].as_f64().expect("a number");
    let columns = &bytes[4 + length..];
    for (i, position) in frame.positions.iter().enumerate() {
        for axis in 0..3 {
            let at = 6 * i + 2 * axis;
            let part = f64::from(u16::from_le_bytes([columns[at], columns[at + 1]])) / 65535.0;
            let size = corner("high", axis) - corner("low", axis);
            let read = corner("low", axis) + part * size;
            assert!((read - position[axis]).abs() < 1e-5 * size, "{read} for {}", position[axis]);
        }
    }
    let fastest = frame.velocities.iter().map(|v| glam::Vec3::from(*v).length()).fold(0.0, f32::max);
    assert!((head["range"][1].as_f64().expect("a number") - f64::from(fastest)).abs() < 1e-6);
    // A frame that the page already has is not sent again.
    let key = head["key"].as_str().expect("a key");
    assert_eq!(get(&host, &format!("{path}particles/water/2?field=speed&have={key}")).0, 204);

    let (_, work) = get(&host, &format!("{path}work?from=0"));
    assert_eq!(work, std::fs::read(out.join("work.csv")).expect("a table"));
    assert_eq!(
        String::from_utf8_lossy(&work).lines().count(),
        3,
        "a head, and a row for each frame after the start"
    );
    let (_, table) = get(&host, &format!("{path}probe/energy?from=0"));
    assert_eq!(table, std::fs::read(out.join("probes/energy.csv")).expect("a table"));
    let (_, rest) = get(&host, &format!("{path}probe/energy?from={}", table.len()));
    assert_eq!(rest, b"");
    let beyond = format!("{path}probe/energy?from={}", table.len() + 1);
    assert_eq!(get(&host, &beyond).0, 404, "the run has gone back");

    for page in ["/", "/run.json", "/0123/run.json"] {
        assert_eq!(get(&host, page).0, 404, "{page}");
    }
    for page in
        ["particles/..%2f..%2fwater/0", "particles/wine/0", "particles/water/9", "probe/..%2fscene", "x"]
    {
        assert_eq!(get(&host, &format!("{path}{page}")).0, 404, "{page}");
    }
    let other = Command::new(PROGRAM).arg("watch").arg(folder.path()).output().expect("runs");
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("holds no results of a run: give the folder"));
}

#[test]
fn a_run_of_a_coordinator_as_a_service_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "coordinator", "--listen=127.0.0.1:0", "--exit-with-stdin", "--dir"]);
    command.arg(folder.path().join("runs")).stdin(Stdio::piped());
    let (_service, line) = started(&mut command);
    let service = line.strip_prefix("listening ").expect("an address");
    let wrong = Command::new(PROGRAM).args(["watch", service]).output().expect("runs");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("has no run"), "{wrong:?}");
    let mut submit = Command::new(PROGRAM);
    submit.args(["at", service, "submit"]).arg(scene()).args(["--frames=2", "--follow"]);
    assert!(submit.output().expect("runs").status.success());
    let (_page, address) = started(Command::new(PROGRAM).args(["watch", service, "--run=drop-1"]));
    let (host, path) = parts(&address);
    let run = json(&host, &format!("{path}run.json"));
    assert_eq!(
        (&run["name"], &run["frames"], &run["work"]),
        (&"drop".into(), &3.into(), &true.into()),
        "{run}"
    );
    assert!(run["probes"].as_array().expect("probes").iter().any(|probe| probe["name"] == "energy"), "{run}");
    assert_eq!(get(&host, &format!("{path}particles/water/2?field=speed&have=")).0, 200);
    let here = folder.path().join("runs/drop-1/results/probes/energy.csv");
    let (_, table) = get(&host, &format!("{path}probe/energy?from=0"));
    assert_eq!(table, std::fs::read(here).expect("a table"));
    assert_eq!(get(&host, &format!("{path}surface/water/9")).0, 404);
}

#[test]
fn beyond_this_machine_the_page_is_encrypted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, certificates) = (folder.path().join("out"), folder.path().join("certs"));
    run(&out);
    let mut certs = Command::new(PROGRAM);
    assert!(
        certs.arg("certs").arg(&certificates).arg("--hosts=node1").output().expect("runs").status.success()
    );
    let open = Command::new(PROGRAM).arg("watch").arg(&out).arg("--listen=0.0.0.0:0").output().expect("runs");
    assert_eq!(open.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&open.stderr).contains("give certificates with --tls DIR"), "{open:?}");
    let tls = format!("--tls={}", certificates.display());
    let (_page, address) = started(Command::new(PROGRAM).arg("watch").arg(&out).arg(tls));
    let host = address.strip_prefix("https://").and_then(|rest| rest.split('/').next()).expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert!(runtime.block_on(amalgam_network::speaks_tls(host, Duration::from_secs(10))));
}

#[test]
fn a_run_that_goes_on_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(scene()).args(["--set", "time.duration=100.0", "--watch", "--out"]).arg(&out);
    let mut running = Running(command.stderr(Stdio::piped()).spawn().expect("starts"));
    let mut said = BufReader::new(running.0.stderr.take().expect("its errors")).lines();
    let address =
        said.find_map(|line| line.expect("a line").split_once("watch at ").map(|found| found.1.to_string()));
    let (host, path) = parts(&address.expect("an address"));
    // The rest of the output must be read, so that the run can write.
    std::thread::spawn(move || said.for_each(drop));
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "only {seen:?}");
        std::thread::sleep(Duration::from_millis(50));
        let (status, body) = get(&host, &format!("{path}run.json"));
        if status != 200 {
            continue;
        }
        let run: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(run["end"], Value::Null);
        let frames = run["frames"].as_u64().expect("a number");
        if frames > 0 && seen.last() != Some(&frames) {
            let last = format!("{path}particles/water/{}?field=&have=", frames - 1);
            assert_eq!(get(&host, &last).0, 200);
            seen.push(frames);
        }
    }
    assert!(seen.is_sorted(), "{seen:?}");
}

#[test]
fn at_a_terminal_the_page_stays_after_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(scene()).args(["--frames", "2", "--watch", "--transport", "in-process", "--out"]);
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    command.arg(folder.path().join("out")).stdin(terminal.slave).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut running = Running(command.spawn().expect("starts"));
    let mut lines =
        BufReader::new(running.0.stderr.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let mut until =
        |what: &str| lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}"));
    let address = until("watch at ");
    let (host, path) = parts(address.trim_start_matches("watch at "));
    until("the page stays until Ctrl-C");
    assert_eq!(json(&host, &format!("{path}run.json"))["end"]["error"], Value::Null);
    let id = nix::unistd::Pid::from_raw(running.0.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).expect("it runs");
    assert!(running.0.wait().expect("ends").success());
}

/// Headless Chromium that draws in software.
fn chromium(width: u32, height: u32) -> Command {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"]);
    command.args(["--enable-unsafe-swiftshader", "--hide-scrollbars"]);
    command.arg(format!("--window-size={width},{height}"));
    command
}

/// The text of an element of a page.
fn output_of(page: &str, id: &str) -> String {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).expect("an element");
    let (_, rest) = rest.split_once('>').expect("its start");
    rest.split_once('<').expect("its end").0.to_string()
}

/// The page in headless Chromium: `cargo test --release --workspace --test watch -- --ignored`.
#[test]
#[ignore = "needs chromium"]
fn a_browser_draws_the_frame_and_the_curve() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    run(&out);
    let (_running, host, path) = watch(&out);
    let table = std::fs::read_to_string(out.join("probes/energy.csv")).expect("a table");
    let last: f64 =
        table.lines().last().and_then(|row| row.split(',').nth(1)?.parse().ok()).expect("a value");
    for width in [400u32, 1600] {
        let chromium = |frame: u32, what: &str| {
            let address = format!("http://{host}{path}#frame={frame}&field=speed&probe=energy.1");
            let mut command = chromium(width, 900);
            command.arg("--virtual-time-budget=8000").arg(what).arg(address);
            let output = command.current_dir(folder.path()).output().expect("chromium is installed");
            assert!(output.status.success());
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // The slider is where the address says.
        for frame in [0, 2] {
            let page = chromium(frame, "--dump-dom");
            let output = |id: &str| output_of(&page, id);
            assert!(output("time").ends_with(&format!("frame {frame}")), "{}", output("time"));
            assert!(output("state").starts_with("finished, 3 frames"), "{}", output("state"));
            let value: f64 = output("value").parse().expect("a number");
            assert!((value / last - 1.0).abs() < 1e-4, "{value} is not {last}");
        }
        // The page is drawn: the cloth at rest is violet, and the drop's particles, drawn in place of its
        // surface, are yellow.
        chromium(0, "--screenshot=page.png");
        let file =
            std::io::BufReader::new(std::fs::File::open(folder.path().join("page.png")).expect("a picture"));
        let mut reader = png::Decoder::new(file).read_info().expect("a picture");
        let mut pixels = vec![0; reader.output_buffer_size().expect("its size")];
        let info = reader.next_frame(&mut pixels).expect("a picture");
        let stride = info.color_type.samples();
        let is_violet = |p: &[u8]| p[2] > 50 && p[1] < 40 && p[0] > 30 && p[0] < 160;
        let is_yellow = |p: &[u8]| p[0] > 120 && p[1] > 110 && p[2] < 70;
        let count =
            |is: &dyn Fn(&[u8]) -> bool| pixels.chunks_exact(stride).filter(|pixel| is(pixel)).count();
        let [violet, yellow] = [count(&is_violet), count(&is_yellow)];
        assert!(violet > 2000, "only {violet} pixels of cloth at a width of {width}");
        assert!(yellow > 200, "only {yellow} pixels of the drop at a width of {width}");
    }
}

/// Prints how many pictures per second Chromium draws in software:
/// `cargo test --release --workspace --test watch -- --ignored --nocapture pictures_per_second`.
#[test]
#[ignore = "measures, and needs chromium"]
fn pictures_per_second() {
    const PICTURES: u32 = 40;
    for (particles, spacing) in [(60_000, 0.0256), (1_000_000, 0.01)] {
        let folder = tempfile::tempdir().expect("a folder");
        let scene = format!(
            "[scene]\nname = 'balls'\n[domain]\nmin = [-1.0, -1.0, -1.0]\nmax = [2.0, 2.0, 2.0]\ngravity = [0.0, 0.0, 0.0]\n\
             [time]\nduration = 1e-6\nframe_interval = 1e-6\n\
             [[participants]]\nname = 'water'\nsolver = 'fluid'\n[participants.settings]\nmethod = 'sph'\nspacing = {spacing}\nsound_speed = 20.0\n\
             [[participants.settings.shapes]]\ntype = 'box'\nmin = [0.0, 0.0, 0.0]\nmax = [1.0, 1.0, 1.0]\n"
        );
        let file = folder.path().join("scene.toml");
        std::fs::write(&file, scene).expect("writes");
        let out = folder.path().join("out");
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(file).args(["--quiet", "--transport", "in-process", "--out"]).arg(&out);
        assert!(command.status().expect("runs").success());
        let (_running, host, path) = watch(&out);
        // The page's own clock stands still while it draws. So the time is taken outside, with few pictures
        // and with more.
        let [few, many] = [1, 1 + PICTURES].map(|pictures| {
            let start = Instant::now();
            let mut command = chromium(1280, 800);
            command.args(["--virtual-time-budget=8000", "--dump-dom"]);
            command.arg(format!("http://{host}{path}#frame=1&field=speed&draw={pictures}"));
            let output = command.current_dir(folder.path()).output().expect("chromium is installed");
            let page = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output_of(&page, "value"), format!("{pictures} drawn"));
            start.elapsed().as_secs_f64()
        });
        let bytes = get(&host, &format!("{path}particles/water/1?field=speed&have=")).1.len();
        let speed = f64::from(PICTURES) / (many - few);
        println!("{particles} balls: {speed:.1} pictures per second, {bytes} bytes per frame");
    }
}
