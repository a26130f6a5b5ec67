//! A run that is restored from a checkpoint goes on to the same bits, and each field of a checkpoint is
//! needed for that.

mod support;

use std::collections::BTreeMap;

use amalgam::cli::Transport;
use amalgam::console::Console;
use amalgam::run::local::{Locals, Means};
use amalgam::scene::Scene;
use amalgam_coordinator::{Cancel, Checkpoint, CoordinatorError, Simulation};
use ciborium::Value;
use support::at_once::at_once;
use support::checkpointed::{CASES, Case, Source};
use support::process::repository;

/// A scene of the repository, with changes as for `--set`.
fn file(path: &str, set: &[&str]) -> Scene {
    let set: Vec<String> = set.iter().map(|set| set.to_string()).collect();
    Scene::read(&repository(path), &set).unwrap_or_else(|error| panic!("{path}: {error:?}"))
}

impl Case {
    fn scene(&self) -> Scene {
        let set: Vec<String> = self.set.iter().map(|set| set.to_string()).collect();
        match self.source {
            Source::File(path) => file(path, self.set),
            Source::Text(text) => {
                Scene::parse(self.name, text, &set).unwrap_or_else(|error| panic!("{error:?}"))
            }
        }
    }
}

/// A simulation and the services of its participants.
struct Live {
    simulation: Simulation,
    _locals: Locals,
}

impl Live {
    fn start(scene: &Scene) -> Self {
        let locals = Locals::start(
            scene,
            Means { transport: Transport::InProcess, threads: Some(1), ..Means::default() },
            &Console::new(true),
        );
        let (locals, participants) = locals.unwrap_or_else(|error| panic!("{error}"));
        let simulation = Simulation::connect(scene.plan(), participants, &Cancel::new());
        Self { simulation: simulation.unwrap_or_else(|error| panic!("{error}")), _locals: locals }
    }

    /// Goes on for `steps` steps, or to the end; at each of `at` a checkpoint is taken.
    fn run(&mut self, steps: u64, at: &[u64]) -> Result<Seen, CoordinatorError> {
        let simulation = &mut self.simulation;
        let mut seen = Seen::default();
        for _ in 0..steps {
            if simulation.is_finished() {
                break;
            }
            let mut record = simulation.step()?;
            record.wall_s = 0.0;
            let step = record.step + 1;
            seen.steps.insert(step, format!("{record:?} {:?}", simulation.probes()));
            if record.frame_due {
                seen.frames.insert(step, format!("{:?}", simulation.frames()?));
            }
            if at.contains(&step) {
                seen.checkpoints.insert(step, simulation.checkpoint(&|_| None)?);
            }
        }
        Ok(seen)
    }

    fn summary(&self) -> serde_json::Value {
        let mut summary = serde_json::to_value(self.simulation.summary()).expect("JSON");
        summary.as_object_mut().expect("an object").remove("wall_s");
        summary
    }
}

/// Observable state of a run by the number of steps, exact.
#[derive(Default)]
struct Seen {
    steps: BTreeMap<u64, String>,
    frames: BTreeMap<u64, String>,
    checkpoints: BTreeMap<u64, Checkpoint>,
}

/// The fields of a checkpoint that say how long something took or how many bytes were sent.
const MEASURED: [&str; 5] = ["wall_s", "profile", "solver_s", "waited_s", "wire"];

fn tree(checkpoint: &Checkpoint) -> Value {
    ciborium::from_reader(checkpoint.coordinator.as_slice()).expect("CBOR")
}

fn without_measured(value: Value) -> Value {
    match value {
        Value::Map(entries) => {
            let kept =
                entries.into_iter().filter(|(key, _)| !MEASURED.contains(&key.as_text().unwrap_or_default()));
            Value::Map(kept.map(|(key, value)| (key, without_measured(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_measured).collect()),
        other => other,
    }
}

/// Content of a checkpoint without measurements.
fn exact(checkpoint: &Checkpoint) -> String {
    let snapshots = checkpoint.participants.iter().map(|saved| (saved.state_hash, &saved.snapshot));
    format!("{:?} {:?}", without_measured(tree(checkpoint)), snapshots.collect::<Vec<_>>())
}

/// The steps and frames after a step are the same.
fn assert_same(whole: &Seen, seen: &Seen, step: u64, what: &str) {
    for (whole, seen) in [(&whole.steps, &seen.steps), (&whole.frames, &seen.frames)] {
        let whole: Vec<_> = whole.range(step + 1..).collect();
        assert_eq!(whole.len(), seen.len(), "{what}: steps or frames");
        for ((at, whole), (_, seen)) in whole.into_iter().zip(seen) {
            let same = whole.bytes().zip(seen.bytes()).take_while(|(a, b)| a == b).count();
            let show = |text: &str| text[same.saturating_sub(80)..(same + 80).min(text.len())].to_string();
            assert!(whole == seen, "{what}, {at}:\n{}\n{}", show(whole), show(seen));
        }
    }
}

#[test]
fn what_is_restored_goes_on_to_the_same_bits() {
    at_once(CASES, |case| {
        let (Case { name, steps, .. }, scene) = (case, case.scene());
        let whole = Live::start(&scene).run(u64::MAX, &[]).expect("runs");
        let mut saving = Live::start(&scene);
        let saved = saving.run(u64::MAX, steps).expect("runs");
        assert_same(&whole, &saved, 0, &format!("{name}: saving"));
        assert_eq!(saved.checkpoints.len(), 3, "{name}: {} steps", whole.steps.len());
        for (&step, checkpoint) in &saved.checkpoints {
            let mut restored = Live::start(&scene);
            restored.simulation.restore(checkpoint).unwrap_or_else(|error| panic!("{name}: {error}"));
            let seen = restored.run(u64::MAX, steps).expect("runs");
            assert_same(&whole, &seen, step, &format!("{name}: restored at {step}"));
            for (later, checkpoint) in &seen.checkpoints {
                let first = &saved.checkpoints[later];
                assert_eq!(exact(checkpoint), exact(first), "{name}: checkpoint {later} after {step}");
            }
            let hash = |live: &Live| live.simulation.summary().state_hash;
            assert_eq!(hash(&restored), hash(&saving), "{name}: after {step}");
        }
        // The same run may go back, too.
        let (&step, checkpoint) = saved.checkpoints.iter().nth(1).expect("three");
        saving.simulation.restore(checkpoint).unwrap_or_else(|error| panic!("{name}: {error}"));
        let seen = saving.run(u64::MAX, steps).expect("runs");
        assert_same(&whole, &seen, step, &format!("{name}: gone back to {step}"));
    });
}

/// The leaves in which two states differ: their path, with the number of an entry, and the value of the
/// first.
fn differences(first: &Value, second: &Value, path: &[Part], found: &mut Vec<(Vec<Part>, Value)>) {
    let deeper = |part: Part| [path, &[part]].concat();
    match (first, second) {
        (Value::Map(a), Value::Map(b)) if a.iter().map(|e| &e.0).eq(b.iter().map(|e| &e.0)) => {
            for ((key, a), (_, b)) in a.iter().zip(b) {
                differences(a, b, &deeper(Part::Key(key.as_text().expect("text").into())), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() && a.iter().all(Value::is_map) => {
            a.iter()
                .zip(b)
                .enumerate()
                .for_each(|(at, (a, b))| differences(a, b, &deeper(Part::At(at)), found));
        }
        (a, b) if format!("{a:?}") != format!("{b:?}") => found.push((path.to_vec(), a.clone())),
        _ => (),
    }
}

#[derive(Clone, Debug)]
enum Part {
    Key(String),
    At(usize),
}

/// The name of a field, whichever entry of a list it is in.
fn name_of(path: &[Part]) -> String {
    let part = |part: &Part| if let Part::Key(key) = part { key.clone() } else { "*".into() };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

/// All leaves of a state.
fn leaves(value: &Value, path: &[Part], found: &mut Vec<(Vec<Part>, Value)>) {
    let deeper = |part: Part| [path, &[part]].concat();
    match value {
        Value::Map(entries) => entries.iter().for_each(|(key, value)| {
            leaves(value, &deeper(Part::Key(key.as_text().expect("text").into())), found);
        }),
        Value::Array(values) if values.iter().all(Value::is_map) => {
            (values.iter().enumerate()).for_each(|(at, value)| leaves(value, &deeper(Part::At(at)), found));
        }
        _ => found.push((path.to_vec(), value.clone())),
    }
}

fn put(value: &mut Value, path: &[Part], new: Value) {
    let Some((part, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    match (part, value) {
        (Part::At(at), Value::Array(values)) => put(&mut values[*at], rest, new),
        (Part::Key(key), Value::Map(entries)) => {
            let entry = entries.iter_mut().find(|entry| entry.0.as_text() == Some(key));
            put(&mut entry.expect("a known key").1, rest, new);
        }
        _ => unreachable!("the path is one of this value"),
    }
}

/// True if a run with another state differs from the run of that state: it is refused, or its summary differs
/// at once, or later observations or a later checkpoint differ.
fn is_noticed(scene: &Scene, checkpoint: &Checkpoint, then: &(serde_json::Value, f64, Seen, u64)) -> bool {
    let (summary, wall_s, whole, last) = then;
    let mut live = Live::start(scene);
    if live.simulation.restore(checkpoint).is_err() {
        return true;
    }
    if live.summary() != *summary || live.simulation.summary().wall_s < *wall_s {
        return true;
    }
    let Ok(seen) = live.run(last - checkpoint.steps, &[*last]) else { return true };
    seen.steps != whole.steps
        || seen.frames != whole.frames
        || seen.checkpoints.get(last).map(exact) != whole.checkpoints.get(last).map(exact)
}

/// A scene that is run up to a checkpoint, and what is seen after it.
struct Tried {
    scene: Scene,
    checkpoint: Checkpoint,
    start: Value,
    then: (serde_json::Value, f64, Seen, u64),
}

impl Tried {
    fn new(case: &Case) -> Self {
        let (scene, at) = (case.scene(), case.steps[1]);
        let mut live = Live::start(&scene);
        let start = tree(&live.simulation.checkpoint(&|_| None).expect("a checkpoint of the start"));
        let last = at + 12;
        let mut saved = live.run(at, &[at]).expect("runs");
        let checkpoint = saved.checkpoints.remove(&at).expect("a checkpoint");
        let (summary, wall_s) = (live.summary(), live.simulation.summary().wall_s);
        let then = (summary, 0.5 * wall_s, live.run(12, &[last]).expect("runs"), last);
        assert!(!is_noticed(&scene, &checkpoint, &then), "{}: the checkpoint itself", case.name);
        Self { scene, checkpoint, start, then }
    }

    fn is_noticed_with(&self, path: &[Part], value: Value) -> bool {
        let mut state = tree(&self.checkpoint);
        put(&mut state, path, value);
        let mut changed = self.checkpoint.clone();
        changed.coordinator.clear();
        ciborium::into_writer(&state, &mut changed.coordinator).expect("writes");
        is_noticed(&self.scene, &changed, &self.then)
    }
}

/// Another value of the same kind, if there is one.
fn other(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Integer(number) => Value::Integer((u64::try_from(*number).expect("a count") + 1).into()),
        Value::Float(number) => Value::Float(2.0 * number + 1.0),
        Value::Array(values) if !values.is_empty() => {
            Value::Array(values.iter().map(other).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Each field of the coordinator's state in turn is as it was at the start of the run, as if a checkpoint had
/// left it out. A field that differs from the start in no scene gets another value.
#[test]
fn every_field_of_a_checkpoint_is_needed() {
    let tried: Vec<Tried> = CASES.iter().filter(|case| case.is_for_fields).map(Tried::new).collect();
    let mut noticed: BTreeMap<String, bool> = BTreeMap::new();
    for case in &tried {
        let mut found = Vec::new();
        differences(&case.start, &tree(&case.checkpoint), &[], &mut found);
        for (path, value) in found {
            let is_noticed = noticed.entry(name_of(&path)).or_default();
            *is_noticed = *is_noticed || case.is_noticed_with(&path, value);
        }
    }
    let with_parts: Vec<String> = noticed.keys().cloned().collect();
    let differs = |name: &str| {
        with_parts.iter().any(|known| name.starts_with(known.as_str()) || known.starts_with(name))
    };
    for case in &tried {
        let mut found = Vec::new();
        leaves(&tree(&case.checkpoint), &[], &mut found);
        for (path, value) in found.iter().filter(|(path, _)| !differs(&name_of(path))) {
            let is_noticed = noticed.entry(name_of(path)).or_default();
            let other = other(value);
            *is_noticed = *is_noticed || other.is_some_and(|other| case.is_noticed_with(path, other));
        }
    }
    let missed: Vec<&String> = noticed.iter().filter(|entry| !entry.1).map(|entry| entry.0).collect();
    assert!(missed.is_empty(), "nothing is noticed without {missed:?}");
    println!("{} fields, those that never differ from the start given another value:", noticed.len());
    noticed.keys().filter(|name| !with_parts.contains(name)).for_each(|name| println!("  {name}"));
}

/// A map without one of its keys, or with one more, is refused.
#[test]
fn a_state_of_other_fields_is_refused() {
    let scene = file("scenes/small/balls.toml", &[]);
    let mut live = Live::start(&scene);
    let checkpoint = live.run(5, &[5]).expect("runs").checkpoints.remove(&5).expect("a checkpoint");
    let Value::Map(state) = tree(&checkpoint) else { panic!("no map") };
    let refusal = |entries: Vec<(Value, Value)>| {
        let mut changed = checkpoint.clone();
        changed.coordinator.clear();
        ciborium::into_writer(&Value::Map(entries), &mut changed.coordinator).expect("writes");
        let restored = Live::start(&scene).simulation.restore(&changed);
        restored.expect_err("another state").to_string()
    };
    for (at, (key, _)) in state.iter().enumerate() {
        let mut less = state.clone();
        less.remove(at);
        let (key, error) = (key.as_text().expect("text"), refusal(less));
        assert!(error.contains("missing field") && error.contains(key), "{error}");
    }
    let error = refusal([&state[..], &[("more".into(), 1.into())]].concat());
    assert!(error.contains("unknown field"), "{error}");
}

/// Checkpoints of other participants, of other programs, of another step, and snapshots that are not theirs.
#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let scene = file("scenes/small/balls.toml", &[]);
    let mut live = Live::start(&scene);
    let checkpoint = live.run(5, &[5]).expect("runs").checkpoints.remove(&5).expect("a checkpoint");
    let refusal = |change: &dyn Fn(&mut Checkpoint)| {
        let mut changed = checkpoint.clone();
        change(&mut changed);
        Live::start(&scene).simulation.restore(&changed).expect_err("another run").to_string()
    };
    let error = refusal(&|other| other.participants.swap(0, 1));
    assert!(error.contains("participants balls, cloth, but this run has cloth, balls"), "{error}");
    let error = refusal(&|other| other.participants[0].version = "0.0.1".into());
    assert!(error.contains("cloth was computed by solid 0.0.1"), "{error}");
    let error = refusal(&|other| other.participants[0].start_hash ^= 1);
    assert!(error.contains("participant cloth begins with other particles"), "{error}");
    let error = refusal(&|other| other.steps = 6);
    assert!(error.contains("not of one run and one step"), "{error}");
    let error = refusal(&|other| other.participants[0].state_hash ^= 1);
    assert!(error.contains("participant cloth broke the contract in Restore of step 5"), "{error}");
    let error = refusal(&|other| other.participants[1].snapshot.truncate(40));
    assert!(error.contains("participant balls") && error.contains("snapshot"), "{error}");
}
