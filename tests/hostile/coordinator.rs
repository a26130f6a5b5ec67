//! Attacks on a coordinator as a service.

use std::path::Path;
use std::time::{Duration, Instant};

use amalgam_proto::coordinator::coordinator_client::CoordinatorClient;
use amalgam_proto::coordinator::submit_request::Part;
use amalgam_proto::coordinator::{self as orders, State};
use amalgam_proto::{CHUNK_BYTES, TransportLimits};
use futures_util::{StreamExt as _, stream};

use super::raw::{RAW, Raw};
use super::support::process::{Folder, repository, stderr, wait_until};
use super::support::service::Service;
use super::{
    ANSWER_DEADLINE, Attack, CONNECTIONS_BYTES, SIEGE, TRY, attempt, besiege, check, dial, is_refusal,
    may_go_on, memory,
};

const DROP: &str = "scenes/small/drop.toml";

/// Memory that the scene takes that is read [bytes].
const SCENE_BYTES: u64 = 256 << 20;

/// Attacks on a coordinator as a service.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnCoordinator {
    Raw(Raw),
    FileFirst,
    EndlessScene,
    EndlessFile,
    ManyFiles,
    PathOut,
    LongPath,
    DeepScene,
    WideScene,
    NoScene,
    SilentSubmission,
    LongOptions,
    UnknownRun,
    FetchOut,
    FollowersWhoDoNotRead,
    OneCallThenSilence,
}

pub(super) fn on_coordinator() -> Vec<OnCoordinator> {
    let calls = [
        OnCoordinator::FileFirst,
        OnCoordinator::EndlessScene,
        OnCoordinator::EndlessFile,
        OnCoordinator::ManyFiles,
        OnCoordinator::PathOut,
        OnCoordinator::LongPath,
        OnCoordinator::DeepScene,
        OnCoordinator::WideScene,
        OnCoordinator::NoScene,
        OnCoordinator::SilentSubmission,
        OnCoordinator::LongOptions,
        OnCoordinator::UnknownRun,
        OnCoordinator::FetchOut,
        OnCoordinator::FollowersWhoDoNotRead,
        OnCoordinator::OneCallThenSilence,
    ];
    calls.into_iter().chain(RAW.map(OnCoordinator::Raw)).collect()
}

fn request(part: Part) -> orders::SubmitRequest {
    orders::SubmitRequest { part: Some(part) }
}

/// The id of the run that is computed meanwhile: the first one of a service.
const FIRST_RUN: &str = "drop-1";

impl Attack for OnCoordinator {
    fn is_refused(self) -> bool {
        match self {
            Self::Raw(raw) => !may_go_on(raw),
            Self::SilentSubmission | Self::FollowersWhoDoNotRead | Self::OneCallThenSilence => false,
            // So many bytes take longer than a try.
            Self::EndlessFile => false,
            _ => true,
        }
    }

    fn strike(self, address: &str, longest: Duration) -> bool {
        match self {
            Self::Raw(raw) => raw.strike(address, "/amalgam.coordinator.v1.Coordinator/List", longest),
            _ => attempt(self.call(address), longest),
        }
    }
}

impl OnCoordinator {
    async fn call(self, address: &str) -> bool {
        let Some(channel) = dial(address).await else { return false };
        let mut coordinator = CoordinatorClient::new(channel);
        let options = || request(Part::Options(orders::Options::default()));
        let scene = |text: Vec<u8>| request(Part::Scene(text.into()));
        let piece = |path: String, bytes: usize| {
            request(Part::File(orders::FilePiece { path, data: vec![b'x'; bytes].into() }))
        };
        let whole = std::fs::read(repository(DROP)).expect("reads");
        let mut submit = async |calls: stream::BoxStream<'static, orders::SubmitRequest>| {
            coordinator.submit(calls).await.is_err_and(|status| is_refusal(&status))
        };
        let with_file =
            |path: &str| stream::iter([options(), scene(whole.clone()), piece(path.into(), 10)]).boxed();
        match self {
            Self::FileFirst => submit(stream::iter([piece("a".into(), 10)]).boxed()).await,
            Self::EndlessScene => {
                let more = scene(vec![b'#'; CHUNK_BYTES]);
                submit(stream::iter([options()]).chain(stream::repeat(more)).boxed()).await
            }
            Self::EndlessFile => {
                let more = piece("a".into(), CHUNK_BYTES);
                submit(stream::iter([options(), scene(whole)]).chain(stream::repeat(more)).boxed()).await
            }
            Self::ManyFiles => {
                let files = stream::iter(0..300).map(move |at| piece(format!("{at}"), 1));
                submit(stream::iter([options(), scene(whole)]).chain(files).boxed()).await
            }
            Self::PathOut => submit(with_file("../../out")).await,
            Self::LongPath => submit(with_file(&"x".repeat(1 << 20))).await,
            Self::DeepScene => {
                let deep = [b"a = ".to_vec(), vec![b'['; (1 << 20) - 4]].concat();
                submit(stream::iter([options(), scene(deep)]).boxed()).await
            }
            Self::WideScene => {
                let wide = [b"a = [".to_vec(), b"[],".repeat((1 << 20) / 3 - 4), b"]".to_vec()].concat();
                submit(stream::iter([options(), scene(wide)]).boxed()).await
            }
            Self::NoScene => submit(stream::iter([options(), scene(vec![0xff; 1 << 20])]).boxed()).await,
            Self::SilentSubmission => {
                submit(stream::iter([options()]).chain(stream::pending()).boxed()).await
            }
            Self::LongOptions => {
                let options = orders::Options { checkpoint_every: "9".repeat(3 << 20), ..Default::default() };
                submit(stream::iter([request(Part::Options(options)), scene(whole)]).boxed()).await
            }
            Self::UnknownRun => {
                let id = "9".repeat(1 << 20);
                coordinator.pause(orders::PauseRequest { id }).await.is_err_and(|status| is_refusal(&status))
            }
            Self::FetchOut => {
                let path = "../../../../../etc/passwd".into();
                let request = orders::FetchRequest { id: FIRST_RUN.into(), path, from: 0 };
                match coordinator.fetch(request).await {
                    Ok(answer) => {
                        answer.into_inner().message().await.is_err_and(|status| is_refusal(&status))
                    }
                    Err(status) => is_refusal(&status),
                }
            }
            Self::FollowersWhoDoNotRead => {
                let mut kept = Vec::new();
                while let Ok(Ok(answer)) = tokio::time::timeout(
                    TRY / 4,
                    coordinator.follow(orders::FollowRequest { id: FIRST_RUN.into() }),
                )
                .await
                {
                    kept.push(answer);
                }
                tokio::time::sleep(TRY / 2).await;
                false
            }
            Self::OneCallThenSilence => {
                // A caller whose call is answered, and who then keeps its place.
                let listed = coordinator.list(orders::ListRequest {}).await;
                tokio::time::sleep(TRY).await;
                listed.is_err()
            }
            Self::Raw(_) => unreachable!("it makes no calls"),
        }
    }
}

/// A coordinator as a service under attack while it computes a run to the bits of an undisturbed one.
pub(super) fn siege_of_coordinator(
    kinds: &[OnCoordinator],
    time: Duration,
) -> (Vec<(OnCoordinator, u64)>, u64, [u64; 3]) {
    let folder = Folder::new();
    let runs = folder.path().join("runs");
    let directory = format!("--dir={}", runs.display());
    let service = Service::start("coordinator", "127.0.0.1:0", &[&directory]);
    let process = service.child.id();
    let at = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.args(["at", &service.address]).args(arguments).output().expect("starts")
    };
    let scene = repository(DROP);
    let submitted = at(&["submit", scene.to_str().expect("UTF-8")]);
    assert!(submitted.status.success(), "{}", stderr(&submitted));
    let id = String::from_utf8(submitted.stdout).expect("UTF-8").trim().to_string();
    assert_eq!(id, FIRST_RUN);
    let before = memory(process).0;
    let mut asked = 0;
    let counts = besiege(&service.address, kinds, || {
        let start = Instant::now();
        while start.elapsed() < time || asked == 0 && start.elapsed() < ANSWER_DEADLINE {
            let answered = at(&["runs"]);
            asked += u64::from(answered.status.success());
        }
    });
    let listed = wait_until(Duration::from_secs(60), || {
        list(&service.address).is_some_and(|run| {
            assert!(run.error.is_empty(), "{run:?}");
            run.state() == State::Finished
        })
    });
    assert!(listed, "the run does not end");
    let (after, peak) = memory(process);
    check(&service.address, &counts);
    let hash = list(&service.address).expect("answers").state_hash;
    assert_eq!(hash, undisturbed(&scene));
    assert!(asked > 0, "an honest caller was never answered");
    let left = std::fs::read_dir(&runs).expect("lists").filter_map(Result::ok);
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".incoming-")).collect();
    assert!(left.is_empty(), "{left:?} are left over");
    assert!(peak <= before + CONNECTIONS_BYTES + SCENE_BYTES, "{kinds:?}: {peak} bytes, {before} before");
    (counts, asked, [before, after, peak])
}

fn list(address: &str) -> Option<orders::Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut coordinator = CoordinatorClient::new(dial(address).await?);
        let runs = coordinator.list(orders::ListRequest {}).await.ok()?.into_inner().runs;
        runs.into_iter().find(|run| run.id == FIRST_RUN)
    })
}

fn undisturbed(scene: &Path) -> String {
    let folder = Folder::new();
    let output = folder.run(scene, &["--quiet", "--transport=in-process"]);
    assert!(output.status.success(), "{}", stderr(&output));
    folder.summary()["state_hash"].as_str().expect("a hash").into()
}

#[test]
fn a_coordinator_under_siege_computes_its_run_within_its_memory() {
    let (counts, asked, memory) = siege_of_coordinator(&on_coordinator(), SIEGE);
    println!("{asked} answers; refused: {counts:?}; {memory:?} bytes before, after and at most");
}

/// Callers whose call was answered, and who then keep their places without another one.
#[test]
fn callers_who_are_silent_after_a_call_lock_nobody_out_of_a_coordinator() {
    let folder = Folder::new();
    let directory = format!("--dir={}", folder.path().join("runs").display());
    let service = Service::start("coordinator", "127.0.0.1:0", &[&directory]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let kept: Vec<_> = (0..TransportLimits::CONNECTIONS_MAX)
        .map(|_| {
            runtime.block_on(async {
                let channel = dial(&service.address).await.expect("a place");
                CoordinatorClient::new(channel.clone()).list(orders::ListRequest {}).await.expect("lists");
                channel
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1100));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_amalgam"));
    let output = command.args(["at", &service.address, "runs"]).output().expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    drop(kept);
}
