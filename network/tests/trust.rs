//! Admission to services, and the messages at both ends about callers that are refused.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use amalgam_network::certificates::{Made, make};
use amalgam_network::{Credentials, Listen, Role, SecurityOptions, Token, dial, listen, speaks_tls};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn options(folder: Option<&Path>) -> SecurityOptions {
    SecurityOptions { tls: folder.map(Path::to_path_buf), ..SecurityOptions::default() }
}

fn hosts(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

/// A caller of role `caller` that wants a service of role `wanted` dials one of role `own` for coordinators,
/// by `host`. What the caller is told, if anything.
async fn meet(
    (service, own): (Option<&Path>, Role),
    (folder, caller, wanted): (Option<&Path>, Role, Role),
    host: &str,
) -> Option<String> {
    let gate = options(service).gate(own, &[Role::Coordinator]).expect("a gate");
    let mut listening = listen(&Listen::Tcp("127.0.0.1:0".into()), &gate).await.expect("listens");
    let serves = tokio::spawn(async move {
        // The first bytes of HTTP/2 from a service.
        let mut line = listening.incoming.next().await.expect("a connection").expect("a line");
        line.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("writes");
        line.flush().await.expect("writes");
        let _ = line.read(&mut [0; 64]).await;
    });
    let port = listening.address.rsplit_once(':').expect("a port").1;
    let address = format!("{host}:{port}");
    let access = options(folder).access(caller, wanted).expect("an access");
    let dialled = dial(move || Ok(address.clone()), &access);
    let dialled = tokio::time::timeout(Duration::from_secs(5), dialled).await.expect("in time");
    serves.abort();
    let error = dialled.err()?;
    assert!(amalgam_network::is_refusal(&error), "{error:?}");
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Some(cause.to_string())
}

#[tokio::test]
async fn both_ends_are_checked_and_told_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (ours, others, expired) = (at("ours"), at("others"), at("expired"));
    assert_eq!(make(&ours, &hosts(&["node7"]), 30).expect("makes"), Made::Authority);
    make(&others, &hosts(&["node7"]), 30).expect("makes");
    std::fs::create_dir(&expired).expect("creates");
    for name in ["ca.pem", "ca.key"] {
        std::fs::copy(ours.join(name), expired.join(name)).expect("copies");
    }
    assert_eq!(make(&expired, &hosts(&["node7"]), 0).expect("makes"), Made::Roles);
    tokio::time::sleep(Duration::from_millis(1100)).await;

    let coordinator = |folder| (Some(folder), Role::Coordinator, Role::Solver);
    let fine = meet((Some(&ours), Role::Solver), coordinator(&*ours), "localhost").await;
    assert_eq!(fine, None);
    let fine = meet((Some(&ours), Role::Solver), coordinator(&*ours), "127.0.0.1").await;
    assert_eq!(fine, None);
    let cases = [
        ("another authority", Some(&others), Role::Solver, coordinator(&*ours), "is of another authority"),
        ("expired", Some(&expired), Role::Solver, coordinator(&*ours), "its certificate has expired"),
        (
            "we are expired",
            Some(&ours),
            Role::Solver,
            coordinator(&*expired),
            "refuses our certificate: it has expired",
        ),
        (
            "no solver",
            Some(&ours),
            Role::Coordinator,
            coordinator(&*ours),
            "its certificate is that of a coordinator, and a solver is wanted",
        ),
        (
            "no coordinator",
            Some(&ours),
            Role::Solver,
            (Some(&*ours), Role::Operator, Role::Solver),
            "the other end refuses our certificate: its role may not call this service",
        ),
        ("plaintext there", None, Role::Solver, coordinator(&*ours), "the other end speaks without TLS"),
    ];
    for (name, service, own, caller, expected) in cases {
        let told = meet((service.map(|path| path.as_path()), own), caller, "127.0.0.1").await;
        let told = told.unwrap_or_else(|| panic!("{name}: nothing was wrong"));
        assert!(told.contains(expected), "{name}: {told}");
    }
}

#[tokio::test]
async fn a_certificate_is_for_its_hosts() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path(), &hosts(&["node7", "10.0.0.7"]), 30).expect("makes");
    // Every name of this machine is in a certificate; another address of the loopback interface is not.
    let caller = (Some(folder.path()), Role::Coordinator, Role::Solver);
    let gate = options(Some(folder.path())).gate(Role::Solver, &[Role::Coordinator]).expect("a gate");
    let listening = listen(&Listen::Tcp("127.0.0.2:0".into()), &gate).await.expect("listens");
    let (address, access) =
        (listening.address.clone(), options(caller.0).access(caller.1, caller.2).expect("an access"));
    let error = dial(move || Ok(address.clone()), &access).await;
    let error = format!("{:?}", error.expect_err("another host"));
    assert!(error.contains("is not for host 127.0.0.2, but for") && error.contains("node7"), "{error}");
}

#[tokio::test]
async fn a_service_with_tls_is_known_by_who_speaks_without() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path(), &hosts(&["node7"]), 30).expect("makes");
    for (tls, expected) in [(Some(folder.path()), true), (None, false)] {
        let gate = options(tls).gate(Role::Solver, &[Role::Coordinator]).expect("a gate");
        let listening = listen(&Listen::Tcp("127.0.0.1:0".into()), &gate).await.expect("listens");
        assert_eq!(speaks_tls(&listening.address, Duration::from_millis(500)).await, expected);
    }
}

/// Connections that say nothing end, with TLS and without, and meanwhile give way to one more.
#[tokio::test]
async fn silent_callers_lock_nobody_out() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path(), &hosts(&["node7"]), 30).expect("makes");
    for tls in [Some(folder.path()), None] {
        let gate = options(tls).gate(Role::Solver, &[Role::Coordinator]).expect("a gate");
        let mut listening = listen(&Listen::Tcp("127.0.0.1:0".into()), &gate).await.expect("listens");
        let mut silent = Vec::new();
        for _ in 0..32 {
            silent.push(tokio::net::TcpStream::connect(&listening.address).await.expect("connects"));
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let address = listening.address.clone();
        let access = options(tls).access(Role::Coordinator, Role::Solver).expect("an access");
        let newcomer = tokio::spawn(async move { dial(move || Ok(address.clone()), &access).await.is_ok() });
        let mut lines = Vec::new();
        let greet = async {
            while let Some(Ok(mut line)) = listening.incoming.next().await {
                // A silent one may have been hung up on.
                let _ = line.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
                let _ = line.flush().await;
                lines.push(line);
            }
        };
        let came = tokio::select! {
            () = greet => false,
            came = newcomer => came.expect("it does not panic"),
        };
        assert!(came, "nobody comes in beside silent callers");
    }
}

#[test]
fn keys_and_tokens_are_for_their_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = folder.path().join("certs");
    make(&certificates, &hosts(&["node7"]), 30).expect("makes");
    let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(&certificates), 0o700);
    for role in Role::ALL {
        assert_eq!(mode(&certificates.join(format!("{role}.key"))), 0o600);
        assert_eq!(mode(&certificates.join(format!("{role}.pem"))), 0o644);
        Credentials::read(&certificates, role).expect("can be used");
    }
    assert_eq!(mode(&certificates.join("ca.key")), 0o600);
    let key = certificates.join("solver.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("sets");
    let error = Credentials::read(&certificates, Role::Solver).expect_err("others can read it").to_string();
    assert!(error.contains("can be read by others: chmod 600"), "{error}");
    std::fs::copy(certificates.join("operator.pem"), certificates.join("coordinator.pem")).expect("copies");
    let error = Credentials::read(&certificates, Role::Coordinator).expect_err("another role").to_string();
    assert!(error.contains("is the certificate of an operator"), "{error}");
    let error = Credentials::read(&folder.path().join("none"), Role::Solver).expect_err("none").to_string();
    assert!(error.contains("amalgam certs DIR --hosts a,b"), "{error}");

    let file = folder.path().join("token");
    let write = |text: &str, mode: u32| {
        let mut out = std::fs::File::create(&file).expect("creates");
        out.write_all(text.as_bytes()).expect("writes");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("sets");
        Token::read(&file).map_err(|error| error.to_string())
    };
    assert!(write("0123456789abcdef\n", 0o600).is_ok());
    assert!(write("0123456789abcdef\n", 0o604).expect_err("open").contains("chmod 600"));
    for text in ["short", "two words of a token", ""] {
        assert!(write(text, 0o600).expect_err("no token").contains("must hold one line"), "{text}");
    }
    assert_eq!(Token::random().expect("random").word().len(), 64);
    assert_ne!(Token::random().expect("random").word(), Token::random().expect("random").word());
}

#[tokio::test]
async fn beyond_the_host_nobody_speaks_without_certificates_by_mistake() {
    let gate = options(None).gate(Role::Solver, &[Role::Coordinator]).expect("a gate");
    let error = listen(&Listen::Tcp("0.0.0.0:0".into()), &gate).await.err().expect("is open").to_string();
    assert!(error.contains("--tls DIR"), "{error}");
    let access = options(None).access(Role::Coordinator, Role::Solver).expect("an access");
    let since = Instant::now();
    let dialled = dial(|| Ok("192.0.2.1:7401".into()), &access).await;
    let error = format!("{:?}", dialled.expect_err("another machine"));
    assert!(
        error.contains("192.0.2.1:7401 is another machine") && since.elapsed() < Duration::from_secs(5),
        "{error}"
    );
}
