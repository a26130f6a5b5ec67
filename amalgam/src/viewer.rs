//! `amalgam watch`: a page in the browser that shows the results of a run, also while they are written.

mod results;
mod source;

use std::path::Path;

use amalgam_coordinator::Address;
use amalgam_network::{Role, SecurityOptions, Token};

use crate::{
    cli::WatchArgs,
    console::say,
    error::CommandError,
    folder::SCENE,
    pages::http::{self, Answer, At},
};
use results::{Results, Shown};
pub use source::Source;

const PAGE: &str = include_str!("viewer/page.html");
const SCRIPT: &str = include_str!("viewer/page.js");
const CURVES: &str = include_str!("viewer/curves.js");
/// The library uPlot, with its licence beside it.
const CHARTS: &str = include_str!("viewer/uplot/uPlot.iife.min.js");
const CHARTS_STYLE: &str = include_str!("viewer/uplot/uPlot.min.css");
const STYLE: &str = include_str!("viewer/page.css");

/// Shows the results of a run until the command is ended.
///
/// # Errors
/// A folder that holds no results of a run, a service that cannot be reached or has no such run, or a port
/// that is taken.
pub fn watch(args: &WatchArgs) -> Result<(), CommandError> {
    say(show(source(args)?, &args.listen, &args.security)?)?;
    loop {
        std::thread::park();
    }
}

fn source(args: &WatchArgs) -> Result<Source, CommandError> {
    let folder = Path::new(&args.place);
    if folder.join(SCENE).exists() {
        return Ok(Source::Folder(folder.into()));
    }
    match Address::parse(&args.place) {
        Ok(address) if !folder.exists() => Source::service(&address, &args.security, args.run.as_deref()),
        _ => Err(CommandError::Usage(format!(
            "{} holds no results of a run: give the folder that `amalgam run` writes to, out/NAME OF THE SCENE, or the \
             address of a coordinator, HOST:PORT; `amalgam run SCENE --watch` computes and shows at once",
            args.place
        ))),
    }
}

/// Shows results as long as this process lives. Returns the page's address.
///
/// # Errors
/// A port that is taken, or an address beyond this machine without `--tls` or `--insecure`.
pub fn show(source: Source, at: &At, security: &SecurityOptions) -> Result<String, CommandError> {
    let failed =
        |error: anyhow::Error| CommandError::Usage(format!("cannot show the run at {at}: {error:#}"));
    // Other users of the machine must not see the run unless they are told its address.
    let token = Token::random().map_err(|error| failed(error.into()))?.word()[..32].to_string();
    let prefix = format!("/{token}/");
    let answer = move |path: &str, query: &str| match path.strip_prefix(&prefix) {
        Some(page) => answer(&source, page, query),
        None => Answer::missing("the page's address is the one that the command printed\n"),
    };
    let pages = security.pages(Role::Coordinator).map_err(failed)?;
    let address = http::serve("watch", at, pages, answer).map_err(failed)?;
    Ok(format!("{address}/{token}/"))
}

fn answer(source: &Source, page: &str, query: &str) -> Answer {
    const BYTES: &str = "application/octet-stream";
    let given = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let number = |text: &str| text.parse::<usize>().ok();
    let results = Results::new(source);
    let shown = match page.split('/').collect::<Vec<_>>()[..] {
        [""] => return Answer::ok("text/html; charset=utf-8", PAGE),
        ["page.js"] => return Answer::ok("text/javascript; charset=utf-8", SCRIPT),
        ["curves.js"] => return Answer::ok("text/javascript; charset=utf-8", CURVES),
        ["uPlot.js"] => return Answer::ok("text/javascript; charset=utf-8", CHARTS),
        ["uPlot.css"] => return Answer::ok("text/css; charset=utf-8", CHARTS_STYLE),
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
        ["work"] => results.work(number(given("from")).unwrap_or(0)),
        ["probe", name] => results.probe(name, number(given("from")).unwrap_or(0)),
        _ => Err("no such page".into()),
    };
    match shown {
        Ok(Shown::New(bytes)) => Answer::ok(BYTES, bytes),
        Ok(Shown::Same) => Answer::nothing(),
        Err(why) => Answer::missing(why + "\n"),
    }
}
