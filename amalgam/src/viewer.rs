//! `amalgam watch`: a page in the browser that shows the results of a run, also while they are written.

mod results;

use std::{fs, io, path::Path};

use amalgam_network::Token;

use crate::{
    cli::WatchArgs,
    console::say,
    error::CommandError,
    http::{self, Answer, At},
    run::output::SCENE,
};
use results::{Results, Shown};

const PAGE: &str = include_str!("viewer/page.html");
const SCRIPT: &str = include_str!("viewer/page.js");
const STYLE: &str = include_str!("viewer/page.css");

/// Shows the results in a folder until the command is ended.
///
/// # Errors
/// A folder that holds no results of a run, or a port that is taken.
pub fn watch(args: &WatchArgs) -> Result<(), CommandError> {
    if let Err(error) = fs::metadata(args.folder.join(SCENE)) {
        let folder = args.folder.display();
        let reason =
            if error.kind() == io::ErrorKind::NotFound { String::new() } else { format!(" ({error})") };
        return Err(CommandError::Usage(format!(
            "{folder} holds no results of a run{reason}: give the folder that `amalgam run` writes to, \
             out/NAME OF THE SCENE; `amalgam run SCENE --watch` computes and shows at once"
        )));
    }
    say(show(&args.folder, args.port)?)?;
    loop {
        std::thread::park();
    }
}

/// Shows the results in a folder as long as this process lives, on a port of this machine, any if 0. Returns the page's address.
///
/// # Errors
/// A port that is taken.
pub fn show(folder: &Path, port: u16) -> Result<String, CommandError> {
    let failed = |error: io::Error| {
        CommandError::Usage(format!(
            "cannot show the run at port {port}: {error}; choose another port, or none"
        ))
    };
    // Whoever shares the machine must not see the run unless told of its address.
    let token = Token::random().map_err(failed)?.word()[..32].to_string();
    let at: At = port.to_string().parse().map_err(CommandError::Usage)?;
    let prefix = format!("/{token}/");
    let folder = folder.to_path_buf();
    let answer = move |path: &str, query: &str| match path.strip_prefix(&prefix) {
        Some(page) => answer(&folder, page, query),
        None => Answer::missing("the page's address is the one that the command printed\n"),
    };
    let address = http::serve("watch", &at, answer).map_err(failed)?;
    Ok(format!("http://{address}/{token}/"))
}

fn answer(folder: &Path, page: &str, query: &str) -> Answer {
    const BYTES: &str = "application/octet-stream";
    let given = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let number = |text: &str| text.parse::<usize>().ok();
    let results = Results::new(folder);
    let shown = match page.split('/').collect::<Vec<_>>()[..] {
        [""] => return Answer::ok("text/html; charset=utf-8", PAGE),
        ["page.js"] => return Answer::ok("text/javascript; charset=utf-8", SCRIPT),
        ["page.css"] => return Answer::ok("text/css; charset=utf-8", STYLE),
        ["run.json"] => results.run().map(|run| Shown::New(run.to_string().into_bytes())),
        ["particles", name, entry] => match number(entry) {
            Some(entry) => results.particles(name, entry, given("field"), given("have")),
            None => Err("no such frame".into()),
        },
        ["surface", name, entry] => match number(entry) {
            Some(entry) => results.surface(name, entry),
            None => Err("no such frame".into()),
        },
        ["obstacles"] => results.obstacles(),
        ["probe", name] => results.probe(name, number(given("from")).unwrap_or(0)),
        _ => Err("no such page".into()),
    };
    match shown {
        Ok(Shown::New(bytes)) => Answer::ok(BYTES, bytes),
        Ok(Shown::Same) => Answer::nothing(),
        Err(why) => Answer::missing(why + "\n"),
    }
}
