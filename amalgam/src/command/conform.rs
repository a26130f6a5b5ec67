//! `amalgam conform`: finds out whether a service keeps the contract between coordinator and solver.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use amalgam_conform::{Finding, RULES, Rule, Section, Verdict, examine};
use amalgam_coordinator::Address;
use amalgam_network::{Role, speaks_tls};
use amalgam_particles::DVec3;
use amalgam_solver_kit::serve_in_process;

use crate::{
    cli::ConformArgs,
    console::say,
    error::{CommandError, ending::EXIT_FAILED},
    run::local::START_DEADLINE,
    scene::{Scene, Served},
};

/// Longest time to find out whether a service speaks TLS.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);

/// Tries the rules on a service and prints the findings.
///
/// # Errors
/// A wrong command line or scene, or a service that cannot be reached.
pub fn conform(args: &ConformArgs) -> Result<ExitCode, CommandError> {
    if args.list {
        return list().map(|()| ExitCode::SUCCESS);
    }
    let unknown = args.only.iter().find(|name| !rules().any(|rule| rule.name == **name));
    if let Some(name) = unknown {
        return Err(CommandError::Usage(format!("there is no rule `{name}`; --list names them")));
    }
    let (section, served) = section(args)?;
    let access = args.security.access(Role::Coordinator, Role::Solver);
    let access = access.map_err(|error| CommandError::Usage(format!("{error:#}")))?;
    let mut started = None;
    let address = match (&args.address, &args.command[..]) {
        (Some(address), _) => parse(address)?,
        (None, [program, rest @ ..]) => {
            let (service, address) = StartedSolver::new(program, rest)?;
            started = Some(service);
            address
        }
        (None, []) => match served {
            Some(Served::At(address)) => parse(&address)?,
            Some(Served::Locally(kind)) => {
                let service = serve_in_process(kind.program(), rayon::current_num_threads(), 1, None);
                Address::InProcess(service.map_err(|error| CommandError::Failed(error.to_string()))?)
            }
            Some(Served::Registered) | None => {
                let text = "say where the service listens, or give the program that serves after --";
                return Err(CommandError::Usage(text.into()));
            }
        },
    };
    let wanted = |rule: &Rule| args.only.is_empty() || args.only.iter().any(|name| name == rule.name);
    let mut unsaid = Ok(());
    let tell = |finding: &Finding| {
        if unsaid.is_ok() {
            unsaid = tell(finding);
        }
    };
    let connect = async {
        if let Address::Tcp(address) = &address
            && !access.has_tls()
            && speaks_tls(address, LOOK_DEADLINE).await
        {
            return Err("it speaks TLS: give the folder of its certificates with --tls DIR".into());
        }
        address.connect(&access).await
    };
    let findings = examine(connect, &section, wanted, tell)
        .map_err(|error| CommandError::Failed(format!("{address}: {error}")))?;
    drop(started);
    unsaid?;
    if let Some(file) = &args.json {
        write(file, &findings)?;
    }
    let count = |is: fn(&Verdict) -> bool| findings.iter().filter(|finding| is(&finding.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    say(format_args!(
        "{} rules kept, {failed} broken, {} skipped",
        count(|verdict| matches!(verdict, Verdict::Passed)),
        count(|verdict| matches!(verdict, Verdict::Skipped(_)))
    ))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().flat_map(|rules| rules.iter())
}

fn list() -> Result<(), CommandError> {
    for rule in rules() {
        say(format_args!("{:20} {} (protocol.md, \"{}\")", rule.name, rule.says, rule.see))?;
    }
    Ok(())
}

fn tell(finding: &Finding) -> Result<(), CommandError> {
    match &finding.verdict {
        Verdict::Passed => say(format_args!("ok      {}", finding.rule)),
        Verdict::Skipped(reason) => say(format_args!("skipped {}: {reason}", finding.rule)),
        Verdict::Failed(reason) => {
            say(format_args!("BROKEN  {}: {reason}", finding.rule))?;
            say(format_args!(
                "        The rule: {} (docs/reference/protocol.md, \"{}\")",
                finding.says, finding.see
            ))?;
            for exchange in &finding.calls {
                let [request, answer] =
                    [&exchange.request, &exchange.answer].map(|text| text.replace('\n', "\n            "));
                say(format_args!("        {} {request}\n         -> {answer}", exchange.call))?;
            }
            Ok(())
        }
    }
}

fn write(file: &Path, findings: &[Finding]) -> Result<(), CommandError> {
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::Failed(format!("{} could not be written: {error}", file.display()))
    };
    let text = serde_json::to_string_pretty(findings).map_err(|error| failed(&error))?;
    std::fs::write(file, text + "\n").map_err(|error| failed(&error))
}

fn parse(address: &str) -> Result<Address, CommandError> {
    Address::parse(address).map_err(CommandError::Usage)
}

/// Section to initialise the service with, and the server that the scene names.
fn section(args: &ConformArgs) -> Result<(Section, Option<Served>), CommandError> {
    if let (Some(file), Some(name)) = (&args.scene, &args.participant) {
        let scene = Scene::read(file, &[])?;
        let Some(participant) = scene.participants.iter().find(|participant| participant.name == *name)
        else {
            return Err(CommandError::Usage(format!("{} has no participant `{name}`", scene.file())));
        };
        let section = Section {
            participant: name.clone(),
            text: participant.section.clone(),
            domain: (scene.domain.min, scene.domain.max),
            gravity: scene.domain.gravity,
            seed: scene.header.seed,
        };
        return Ok((section, Some(participant.served.clone())));
    }
    let Some(file) = &args.settings else {
        let text = "give the section with --settings FILE, or with --scene SCENE --participant NAME";
        return Err(CommandError::Usage(text.into()));
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| CommandError::Usage(format!("{} cannot be read: {error}", file.display())))?;
    let domain = (DVec3::splat(-10.0), DVec3::splat(10.0));
    let gravity = DVec3::new(0.0, 0.0, -9.81);
    Ok((Section { participant: "conform".into(), text, domain, gravity, seed: 1 }, None))
}

/// A service that was started to be tried, and is ended with this.
struct StartedSolver(Child);

impl StartedSolver {
    fn new(program: &str, arguments: &[String]) -> Result<(Self, Address), CommandError> {
        let mut command = Command::new(program);
        command.args(arguments).args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn();
        let mut child =
            child.map_err(|error| CommandError::Failed(format!("`{program}` cannot be started: {error}")))?;
        let output = child.stdout.take();
        let started = Self(child);
        let (sender, listening) = mpsc::channel();
        let relay = move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { break };
                match line.strip_prefix("listening ") {
                    // Sending fails only if the start took too long.
                    Some(address) => drop(sender.send(address.to_string())),
                    None => crate::console::note(line),
                }
            }
        };
        let thread = std::thread::Builder::new().name("relay".into()).spawn(relay);
        thread.map_err(|error| CommandError::Failed(error.to_string()))?;
        let address = listening.recv_timeout(START_DEADLINE).map_err(|_| {
            CommandError::Failed(format!(
                "`{program}` did not print a line `listening ADDRESS` within {} s",
                START_DEADLINE.as_secs()
            ))
        })?;
        Ok((started, parse(&address)?))
    }
}

impl Drop for StartedSolver {
    fn drop(&mut self) {
        // Killing fails only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
